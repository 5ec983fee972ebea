// A LangChain agent with the tools of the gate.
import { ChatOpenAI } from '@langchain/openai';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { prompts } from './prompts.mjs';

// setup:
import { MultiServerMCPClient } from '@langchain/mcp-adapters';

const gate = new MultiServerMCPClient({
  mcpServers: { gate: { transport: 'http', url: process.env.GATE_URL } },
});
const tools = await gate.getTools();
// end of setup

const llm = new ChatOpenAI({ model: 'scripted', apiKey: 'none', configuration: { baseURL: process.env.MODEL_URL } });
const agent = createReactAgent({ llm, tools });
let messages = [];
try {
  for await (const content of prompts()) {
    ({ messages } = await agent.invoke({ messages: [...messages, { role: 'user', content }] }));
    console.log(messages.at(-1).content);
  }
} finally {
  await gate.close();
}
