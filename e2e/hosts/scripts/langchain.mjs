// A LangChain agent with the tools of the gate.
import { ChatOpenAI } from '@langchain/openai';
import { createReactAgent } from '@langchain/langgraph/prebuilt';

// setup:
import { MultiServerMCPClient } from '@langchain/mcp-adapters';

const gate = new MultiServerMCPClient({
  mcpServers: { gate: { transport: 'http', url: process.env.GATE_URL } },
});
const tools = await gate.getTools();
// end of setup

const llm = new ChatOpenAI({ model: 'scripted', apiKey: 'none', configuration: { baseURL: process.env.MODEL_URL } });
try {
  const { messages } = await createReactAgent({ llm, tools }).invoke({ messages: [{ role: 'user', content: process.env.PROMPT }] });
  console.log(messages.at(-1).content);
} finally {
  await gate.close();
}
