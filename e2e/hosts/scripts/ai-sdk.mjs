// An agent of the AI SDK with the tools of the gate.
import { generateText, stepCountIs } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

// setup:
import { createMCPClient } from '@ai-sdk/mcp';

const gate = await createMCPClient({ transport: { type: 'http', url: process.env.GATE_URL } });
const tools = await gate.tools();
// end of setup

const provider = createOpenAICompatible({ name: 'scripted', baseURL: process.env.MODEL_URL, apiKey: 'none' });
try {
  const { text } = await generateText({ model: provider('scripted'), tools, stopWhen: stepCountIs(20), prompt: process.env.PROMPT });
  console.log(text);
} finally {
  await gate.close();
}
