// An MCP server of the TypeScript SDK with the authorization server of its examples. Its tokens are good for any
// resource.
import { randomUUID } from "node:crypto";
import { DemoInMemoryAuthProvider } from "@modelcontextprotocol/sdk/examples/server/demoInMemoryOAuthProvider.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { getOAuthProtectedResourceMetadataUrl, mcpAuthRouter } from "@modelcontextprotocol/sdk/server/auth/router.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { obey } from "./obey.mjs";

const app = express();
const listener = app.listen(0, "127.0.0.1");
await new Promise((listening) => listener.on("listening", listening));
const origin = new URL(`http://127.0.0.1:${listener.address().port}`);
const endpoint = new URL("/mcp", origin);
const verifier = new DemoInMemoryAuthProvider();
verifier.clientsStore.registerClient = async (client) => {
  client.client_id ??= randomUUID();
  verifier.clientsStore.clients.set(client.client_id, client);
  return client;
};
app.use(mcpAuthRouter({ provider: verifier, issuerUrl: origin, resourceServerUrl: endpoint, scopesSupported: ["read"] }));
const auth = requireBearerAuth({ verifier, requiredScopes: ["read"], resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(endpoint) });
app.use("/mcp", auth, express.json(), async (req, res) => {
  const server = new McpServer({ name: "protected", version: "1" });
  server.registerTool("name", {}, () => ({ content: [] }));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await server.connect(transport);
  await transport.handleRequest(req, res, req.body);
});

await obey(async () => ({ close: () => listener.closeAllConnections(), actions: { url: () => endpoint.href } }));
