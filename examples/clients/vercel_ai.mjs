import { openai } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const model = openai("shop");
const prompt = "3 lamps at 14 euros were billed, and 2 ordered. How much is too much?";
const voted = { model, prompt, headers: { "x-reasc-answer": "number" } };
const { text, response } = await generateText(voted);
console.log(text, response.headers["x-reasc-samples"], "samples");
const pieces = [];
for await (const piece of streamText(voted).textStream) pieces.push(piece);
console.log(pieces.join("|"));

const Refund = z.object({ order: z.number(), euros: z.number() });
console.log((await generateText({ model, prompt, output: Output.object({ schema: Refund }) })).output);

const complaint = {
  model,
  prompt: "Orders 1042 and 1043 were billed with a lamp too many. Pay it back.",
  providerOptions: { openai: { store: false } },
  stopWhen: stepCountIs(5),
  tools: {
    find_order: tool({ inputSchema: z.object({ order: z.number() }), execute: () => "3 lamps at 14 euros, 2 ordered" }),
    refund: tool({ inputSchema: Refund, execute: ({ euros }) => `${euros} euros were paid back` }),
  },
};
const { steps } = await generateText(complaint);
for (const step of steps) console.log(step.text || step.toolCalls.map((call) => JSON.stringify(call.input)));
console.log("saved", steps[0].response.headers["x-reasc-tokens-saved"], "tokens");
const told = [];
for await (const part of streamText(complaint).fullStream)
  if (part.type === "tool-call" || part.type === "text-delta") told.push(part.text ?? part.toolName);
console.log(told.join("|"));
