// A Mastra agent with the tools of the gate.
import { Agent } from '@mastra/core/agent';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { prompts } from './prompts.mjs';

// setup:
import { MCPClient } from '@mastra/mcp';

const gate = new MCPClient({ servers: { gate: { url: new URL(process.env.GATE_URL) } } });
const tools = await gate.listTools();
// end of setup

const provider = createOpenAICompatible({ name: 'scripted', baseURL: process.env.MODEL_URL, apiKey: 'none' });
const agent = new Agent({ id: 'assistant', name: 'assistant', instructions: 'Do what the user asks.', model: provider('scripted'), tools });
const messages = [];
for await (const content of prompts()) {
  messages.push({ role: 'user', content });
  const { text } = await agent.generate(messages);
  messages.push({ role: 'assistant', content: text });
  console.log(text);
}
await gate.disconnect();
process.exit();
