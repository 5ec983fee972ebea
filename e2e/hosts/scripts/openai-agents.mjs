// An agent of the OpenAI Agents SDK with the tools of the gate.
import OpenAI from 'openai';
import { run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } from '@openai/agents';

setTracingDisabled(true);
setOpenAIAPI('chat_completions');
setDefaultOpenAIClient(new OpenAI({ baseURL: process.env.MODEL_URL, apiKey: 'none' }));

// setup:
import { Agent, MCPServerStreamableHttp } from '@openai/agents';

const gate = new MCPServerStreamableHttp({ name: 'gate', url: process.env.GATE_URL });
await gate.connect();
const agent = new Agent({ name: 'assistant', model: 'scripted', mcpServers: [gate] });
// end of setup

try {
  console.log((await run(agent, process.env.PROMPT)).finalOutput);
} finally {
  await gate.close();
}
