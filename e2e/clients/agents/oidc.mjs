// An authorization server: oidc-provider, whose users consent without a form. Access tokens are JWTs for the
// resource that the client named.
import { createServer } from "node:http";
import Provider from "oidc-provider";
import { obey } from "./obey.mjs";

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clientAuthMethods: ["none"],
  cookies: { keys: ["tests"] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({ audience: resource, scope: "read write", accessTokenFormat: "jwt", accessTokenTTL: 3600, jwt: { sign: { alg: "RS256" } } }),
      useGrantedResource: () => true,
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/consent/${interaction.uid}` },
  scopes: ["openid", "offline_access", "read", "write"],
  ttl: { Interaction: 600, Session: 600, Grant: 600, AuthorizationCode: 600, AccessToken: 600 },
  pkce: { required: () => true },
});
const serve = provider.callback();
server.on("request", async (req, res) => {
  if (!req.url.startsWith("/consent/")) return serve(req, res);
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res);
  if (prompt.name === "login") return provider.interactionFinished(req, res, { login: { accountId: "alice" } });
  const grant = (grantId && (await provider.Grant.find(grantId))) || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(["openid", ...(prompt.details.missingOIDCScope ?? [])].join(" "));
  for (const [resource, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) grant.addResourceScope(resource, scopes.join(" "));
  return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
});

await obey(async () => ({ close: () => server.closeAllConnections(), actions: { url: () => issuer } }));
