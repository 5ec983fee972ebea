// The TypeScript client of the modern era, without tasks.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { obey } from "./obey.mjs";

await obey(async (url) => {
  const client = new Client(
    { name: "modern", version: "1" },
    { versionNegotiation: { mode: { pin: "2026-07-28" } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return {
    close: () => client.close(),
    actions: {
      list: async () => (await client.listTools()).tools,
      call: ({ name, args }) => client.callTool({ name, arguments: args }),
    },
  };
});
