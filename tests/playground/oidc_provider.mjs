// A standard OpenID Connect provider (npm: oidc-provider, certified) on a loopback port.
// Its accounts and our registration come as JSON. lean: addresses are not in ID tokens, but asked for.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const { accounts, client, port, lean } = JSON.parse(process.argv[2]);

const server = createServer();
server.listen(port, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ response_types: ["code"], grant_types: ["authorization_code"], ...client }],
    // Claims of Slack's kind have addresses for names.
    claims: { openid: ["sub", ...new Set(Object.values(accounts).flatMap(Object.keys))] },
    scopes: ["openid", "email", "profile"],
    conformIdTokenClaims: lean,
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_context, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_context, id) =>
      accounts[id] && { accountId: id, claims: () => ({ ...accounts[id], sub: id }) },
    cookies: { keys: ["playground"] },
  });
  const handle = provider.callback();
  server.on("request", (request, response) =>
    request.url.startsWith("/interaction/")
      ? interact(provider, request, response)
      : handle(request, response),
  );
});

// Asks who it is, and takes any account's word for it.
async function interact(provider, request, response) {
  const { params } = await provider.interactionDetails(request, response);
  if (request.method === "GET") {
    const buttons = Object.keys(accounts)
      .map((id) => `<button name="account" value="${id}">Sign in as ${id}</button>`)
      .join("\n");
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    response.end(`<!doctype html><title>Provider</title>
      <form method="post"><h1>Who are you?</h1>${buttons}
      <button name="account" value="">Do not sign in</button></form>`);
    return;
  }
  let body = "";
  for await (const piece of request) body += piece;
  const accountId = new URLSearchParams(body).get("account");
  if (!accountId) {
    const denied = { error: "access_denied", error_description: "the person said no" };
    await provider.interactionFinished(request, response, denied);
    return;
  }
  const grant = new provider.Grant({ accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  const result = { login: { accountId }, consent: { grantId: await grant.save() } };
  await provider.interactionFinished(request, response, result);
}
