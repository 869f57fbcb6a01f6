// The Anthropic package for Node, streamed and not.
//   node anthropic.mjs BASE_URL KEY  ->  one line of JSON per call: what the client saw
import Anthropic from "@anthropic-ai/sdk";

const [base, key] = process.argv.slice(2);
const client = new Anthropic({ apiKey: key, authToken: null, baseURL: base, maxRetries: 0 });
const input_schema = { type: "object", properties: { colour: { type: "string" } } };
const paint = { name: "paint", description: "Paints the wall.", input_schema };
const messages = [{ role: "user", content: "Paint the wall." }];

function say(message) {
  const text = message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
  const uses = message.content.filter((block) => block.type === "tool_use");
  const calls = uses.map((use) => [use.name, use.input]);
  console.log(JSON.stringify({ way: "messages", text, calls, tokens: message.usage.output_tokens }));
}

for (const tools of [undefined, [paint]]) {
  const body = { model: "policy", max_tokens: 64, messages, tools };
  say(await client.messages.create(body));
  say(await client.messages.stream(body).finalMessage());
}
