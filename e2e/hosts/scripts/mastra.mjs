// A Mastra agent with the tools of the gate.
import { Agent } from '@mastra/core/agent';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

// setup:
import { MCPClient } from '@mastra/mcp';

const gate = new MCPClient({ servers: { gate: { url: new URL(process.env.GATE_URL) } } });
const tools = await gate.listTools();
// end of setup

const provider = createOpenAICompatible({ name: 'scripted', baseURL: process.env.MODEL_URL, apiKey: 'none' });
const agent = new Agent({ id: 'assistant', name: 'assistant', instructions: 'Do what the user asks.', model: provider('scripted'), tools });
console.log((await agent.generate(process.env.PROMPT)).text);
await gate.disconnect();
process.exit();
