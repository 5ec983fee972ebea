// The TypeScript client of the modern era, without tasks.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { obey } from "./obey.mjs";

await obey(async (url) => {
  let sends = 0;
  const counted = (to, init) => {
    if (new Headers(init?.headers).get("mcp-method") === "tools/call") sends++;
    return fetch(to, init);
  };
  const client = new Client(
    { name: "modern", version: "1" },
    { versionNegotiation: { mode: { pin: "2026-07-28" } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: counted }));
  return {
    close: () => client.close(),
    actions: {
      sends: () => sends,
      list: async () => (await client.listTools()).tools,
      call: ({ name, args }) => client.callTool({ name, arguments: args }),
    },
  };
});
