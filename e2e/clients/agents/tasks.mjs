// The client of the tasks extension, for the tasks of both eras. A second
// argument selects the modern era.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createTaskSessionFromClient,
  taskViewFromExecutionEvent,
  toolDeclarationFromMcpTool,
} from "@modelcontextprotocol/ext-tasks/client";
import { obey } from "./obey.mjs";

const protocolVersion = "2026-07-28";
const clientInfo = { name: "tasks", version: "1" };
const modern = process.argv[3] === "modern";

await obey(async (url) => {
  const client = new Client(clientInfo, modern ? { versionNegotiation: { mode: { pin: protocolVersion } } } : {});
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const declared = new Map(
    (await client.listTools()).tools.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]),
  );
  const session = createTaskSessionFromClient(client, {
    endpointId: "gate",
    tools: { currentTool: (name) => declared.get(name) },
    ...(modern && {
      rawDispatch: dispatcher(url),
      v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: {} },
    }),
  });
  return {
    close: async () => {
      await session.close();
      await client.close();
    },
    actions: {
      call: async ({ name, args }, say) => {
        const execution = await session.callTool(name, args, { task: { preference: "prefer" } });
        say(execution.kind, execution.handle?.taskId);
        const onEvent = (event) => {
          const task = taskViewFromExecutionEvent(event);
          if (task) say("status", { status: task.status, statusMessage: task.statusMessage });
        };
        const { outcome } = await execution.settle({ onEvent });
        const { status, result, error } = outcome;
        return { status, result, error: error && { code: error.code, message: error.message } };
      },
      cancel: ({ id }) => session.cancelTask(id),
    },
  };
});

// With the extension, the host itself must send the messages that the client of
// the core protocol does not support.
function dispatcher(url) {
  let id = 0;
  return async (request, { signal } = {}) => {
    const { method, params } = request;
    const response = await fetch(url, {
      method: "POST",
      signal,
      headers: {
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
        "MCP-Protocol-Version": protocolVersion,
        "Mcp-Method": method,
        "Mcp-Name": params.name ?? params.taskId,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: `raw-${++id}`, ...request }),
    });
    const text = await response.text(); // a body, or events, the last of which is the answer
    const { result, error } = JSON.parse(text.startsWith("{") ? text : text.match(/^data: .*$/gm).at(-1).slice("data: ".length));
    return error ? { kind: "error", error } : { kind: "result", result };
  };
}
