// An agent of the OpenAI Agents SDK with the tools of the gate.
import OpenAI from 'openai';
import { run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } from '@openai/agents';
import { prompts } from './prompts.mjs';

setTracingDisabled(true);
setOpenAIAPI('chat_completions');
setDefaultOpenAIClient(new OpenAI({ baseURL: process.env.MODEL_URL, apiKey: 'none' }));

// setup:
import { Agent, MCPServerStreamableHttp } from '@openai/agents';

const gate = new MCPServerStreamableHttp({ name: 'gate', url: process.env.GATE_URL });
await gate.connect();
const agent = new Agent({ name: 'assistant', model: 'scripted', mcpServers: [gate] });
// end of setup

let history = [];
try {
  for await (const content of prompts()) {
    const result = await run(agent, [...history, { role: 'user', content }]);
    history = result.history;
    console.log(result.finalOutput);
  }
} finally {
  await gate.close();
}
