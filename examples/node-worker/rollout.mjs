// What a customer writes: one function. Any OpenAI client would do; this one needs no package.

export async function rollout(task, policy, signal) {
  const messages = [{ role: "user", content: task.question ?? JSON.stringify(task) }];
  const answer = await fetch(`${policy.base_url}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${policy.api_key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: policy.model, messages }),
    signal,
  });
  if (!answer.ok) throw new ModelError(answer.status, await answer.text());
  const said = (await answer.json()).choices[0].message.content;
  return { status: "completed", artefacts: { said } };
}

/** What the model endpoint refuses is the policy's doing (400: its context overflows) or ours. */
class ModelError extends Error {
  constructor(code, text) {
    super(`the model endpoint answered ${code}: ${text.slice(0, 300)}`);
    this.status = [400, 413, 422].includes(code) ? "agent_error" : "infra_error";
  }
}
