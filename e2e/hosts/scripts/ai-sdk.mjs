// An agent of the AI SDK with the tools of the gate.
import { generateText, stepCountIs } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { prompts } from './prompts.mjs';

// setup:
import { createMCPClient } from '@ai-sdk/mcp';

const gate = await createMCPClient({ transport: { type: 'http', url: process.env.GATE_URL } });
const tools = await gate.tools();
// end of setup

const provider = createOpenAICompatible({ name: 'scripted', baseURL: process.env.MODEL_URL, apiKey: 'none' });
const messages = [];
try {
  for await (const content of prompts()) {
    messages.push({ role: 'user', content });
    const { text, response } = await generateText({ model: provider('scripted'), tools, stopWhen: stepCountIs(30), messages });
    messages.push(...response.messages);
    console.log(text);
  }
} finally {
  await gate.close();
  process.exit(); // the client may leave a stream open that it opened before it had a session
}
