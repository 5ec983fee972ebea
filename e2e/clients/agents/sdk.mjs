// The TypeScript SDK of the legacy era.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { obey } from "./obey.mjs";

await obey(async (url) => {
  const client = new Client({ name: "sdk", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  await client.listTools(); // the client learns the task support of the tools
  const tasks = client.experimental.tasks;
  return {
    close: () => client.close(),
    actions: {
      list: async () => (await client.listTools()).tools,
      call: ({ name, args, timeout }) =>
        client.callTool({ name, arguments: args }, undefined, timeout ? { timeout } : {}),
      stream: async ({ name, args, timeout }, say) => {
        const params = { name, arguments: args };
        for await (const message of tasks.callToolStream(params, undefined, timeout ? { timeout } : {})) {
          const { type, task, result, error } = message;
          if (error) throw error;
          say(type, task ?? result);
        }
      },
      get: ({ id }) => tasks.getTask(id),
      result: ({ id }) => tasks.getTaskResult(id, CallToolResultSchema),
      tasks: async () => (await tasks.listTasks()).tasks,
      cancel: ({ id }) => tasks.cancelTask(id),
    },
  };
});
