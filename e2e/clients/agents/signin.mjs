// The TypeScript SDKs of both eras, with a user who signs in. Arguments: the URL, and the era of the SDK.
import * as modern from "@modelcontextprotocol/client";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { obey } from "./obey.mjs";

const redirectUrl = "http://127.0.0.1:1/callback";

// browse follows the redirects of the authorization server until they lead back to the client.
async function browse(url) {
  const cookies = new Map();
  for (let at = url, steps = 0; steps < 20; steps++) {
    const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
    const response = await fetch(at, { redirect: "manual", headers });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
      cookies.set(name, value);
    }
    const next = response.headers.get("location");
    if (!next) throw new Error(`${at}: ${response.status} ${await response.text()}`);
    at = new URL(next, at);
    if (at.href.startsWith(redirectUrl)) return at.searchParams;
  }
  throw new Error("the authorization server redirects forever");
}

// A user signs in whenever the SDK asks for it. "Asked" has the resources and scopes.
class User {
  asked = [];
  redirectUrl = redirectUrl;
  clientMetadata = { client_name: "signin", redirect_uris: [redirectUrl], grant_types: ["authorization_code"], response_types: ["code"], token_endpoint_auth_method: "none" };
  clientInformation() { return this.registered; }
  saveClientInformation(registered) { this.registered = registered; }
  tokens() { return this.saved; }
  saveTokens(tokens) { this.saved = tokens; }
  codeVerifier() { return this.verifier; }
  discoveryState() { return this.discovered; }
  saveDiscoveryState(discovered) { this.discovered = discovered; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  async redirectToAuthorization(url) {
    this.asked.push([url.searchParams.get("resource"), url.searchParams.get("scope")]);
    this.answer = await browse(url);
  }
}

async function signedIn(url, era, user) {
  for (let tries = 0; ; tries++) {
    const [client, Transport, Unauthorized] =
      era === "modern"
        ? [new modern.Client({ name: "signin", version: "1" }, { versionNegotiation: { mode: "auto" } }), modern.StreamableHTTPClientTransport, modern.UnauthorizedError]
        : [new Client({ name: "signin", version: "1" }), StreamableHTTPClientTransport, UnauthorizedError];
    const transport = new Transport(new URL(url), { authProvider: user });
    try {
      await client.connect(transport);
      return client;
    } catch (e) {
      if (!(e instanceof Unauthorized) || tries > 1) throw e;
      await transport.finishAuth(era === "modern" ? user.answer : user.answer.get("code"));
    }
  }
}

await obey(async (url) => {
  const user = new User();
  let client;
  return {
    close: () => client?.close(),
    actions: {
      begin: ({ token }) => { user.saved = { access_token: token, token_type: "bearer" }; },
      list: async () => {
        client = await signedIn(url, process.argv[3], user);
        return { tools: (await client.listTools()).tools.map((tool) => tool.name), asked: user.asked };
      },
    },
  };
});
