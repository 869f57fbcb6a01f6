// The openai package for Node: chat completions and responses, streamed and not.
//   node openai.mjs BASE_URL KEY  ->  one line of JSON per call: what the client saw
import OpenAI from "openai";

const [base, key] = process.argv.slice(2);
const client = new OpenAI({ apiKey: key, baseURL: `${base}/v1`, maxRetries: 0 });
const parameters = { type: "object", properties: { colour: { type: "string" } } };
const paint = { name: "paint", description: "Paints the wall.", parameters };
const user = { role: "user", content: "Paint the wall." };
const say = (way, text, calls, tokens) => console.log(JSON.stringify({ way, text, calls, tokens }));
const pair = (call) => [call.name, JSON.parse(call.arguments)];

for (const tools of [undefined, [{ type: "function", function: paint }]]) {
  const body = { model: "policy", messages: [user], tools };
  const whole = await client.chat.completions.create(body);
  const { content, tool_calls } = whole.choices[0].message;
  const calls = (tool_calls ?? []).map((call) => pair(call.function));
  say("chat", content ?? "", calls, whole.usage.completion_tokens);

  const streamed = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  const final = await streamed.finalChatCompletion();
  const last = final.choices[0].message;
  const found = (last.tool_calls ?? []).map((call) => pair(call.function));
  say("chat", last.content ?? "", found, final.usage.completion_tokens);
}

for (const tools of [undefined, [{ type: "function", strict: false, ...paint }]]) {
  const body = { model: "policy", input: [user], tools };
  const calls = (response) => response.output.filter((item) => item.type === "function_call").map(pair);
  const whole = await client.responses.create(body);
  say("responses", whole.output_text, calls(whole), whole.usage.output_tokens);

  const streamed = client.responses.stream(body);
  let deltas = "";
  streamed.on("response.output_text.delta", (event) => (deltas += event.delta));
  const final = await streamed.finalResponse();
  say("responses", deltas, calls(final), final.usage.output_tokens);
}
