import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI();
const chat = client.chat.completions;
const content = "3 lamps at 14 euros were billed, and 2 ordered. How much is too much?";
const question = { model: "shop", messages: [{ role: "user", content }] };
const voted = { ...question, reasc: { answer: "number" } };
const { data, response } = await chat.create(voted).withResponse();
console.log(data.choices[0].message.content, response.headers.get("x-reasc-samples"), "samples");
const pieces = [];
for await (const chunk of await chat.create({ ...voted, stream: true })) pieces.push(chunk.choices[0].delta.content);
console.log(pieces.filter(Boolean).join("|"));

const Refund = z.object({ order: z.number(), euros: z.number() });
const shaped = await chat.parse({ ...question, response_format: zodResponseFormat(Refund, "refund") });
console.log(shaped.choices[0].message.parsed);

const complaint = {
  model: "shop",
  messages: [{ role: "user", content: "Orders 1042 and 1043 were billed with a lamp too many. Pay it back." }],
  tools: [
    zodFunction({ name: "find_order", parameters: z.object({ order: z.number() }) }),
    zodFunction({ name: "refund", parameters: Refund }),
  ],
};
const called = await chat.parse(complaint);
console.log(called.choices[0].message.tool_calls.map((call) => call.function.parsed_arguments));
const { tool_calls } = await chat.stream(complaint).finalMessage();
console.log(tool_calls.map((call) => call.function.arguments));

const { id, tokens } = called.reasc;
console.log("saved", tokens.saved, "tokens");
console.log(await client.post(new URL("/reasc/outcome", client.baseURL).href, { body: { id, correct: true } }));
