// Shows a plan from its own bytes, and asks a passkey to sign exactly those. It requests nothing:
// the plan is in the part of the address behind #, and the signature leaves by a form.
(function () {
  "use strict";

  var KEYTURN = "{keyturn}"; // The only place to which signatures go.
  var MOST_BYTES = 16 * 1024 * 1024;
  // The keys of a text in their order; those of a group alternate. docs/signed-plans.md has both formats.
  var DOCUMENT_ORDER = [
    "keyturn-plan", "installation", "run", "requested-by", "reason", "runbook", "runbook-version",
    ["field", "value"], "undo-of", "policy", "policy-result", "rule", "not-before", "expires", "nonce",
    "schedule", "cron", "zone", "overlap", "catch-up", "spread", "replaces", "lifetime", "key-of",
    "takes-down", "may-take-down", "ticket", "ticket-state", "ticket-approved", "ticket-from",
    "ticket-until", "ticket-hosts", "ticket-host", ["part", "host"],
  ];
  var STEP_ORDER = ["step", "before", "after"].concat(listCommandKeys("", "do"), listCommandKeys("undo-", "undo"),
    ["no-undo", "undo-title", "probation"]);
  var REPEATED = ["field", "value", "rule", "key-of", "takes-down", "ticket-host", "part", "host", "step",
    "before", "after", "do", "in", "enter", "undo", "undo-in", "undo-enter"];
  var CONDITIONS = {
    "deadline": "stopped after % s", "fails-on": "fails if it prints %", "new-connection": "over a connection of its own",
    "wait-for": "waits for %", "power-state": "power state %", "server": "server %",
  };
  var INVISIBLE = /[^\P{C}]|[\p{Zl}\p{Zp}]/u;
  var JOINERS = /[\u200c\u200d]/g; // Some scripts and emoji need them.

  function listCommandKeys(prefix, words) {
    return [words].concat(["in", "fails-on", "call", "body", "wait-for", "power-state", "deadline", "new-connection",
      "server", "enter"].map(function (key) { return prefix + key; }));
  }

  // What the page shows as it is; any other error is one of the address.
  class Refusal extends Error {}

  function find(id) { return document.getElementById(id); }

  function add(parent, tag, text, name) {
    var element = document.createElement(tag);
    if (text !== undefined) { element.textContent = text; }
    if (name) { element.className = name; }
    parent.appendChild(element);
    return element;
  }

  function addFact(list, term, text, name) {
    add(list, "dt", term);
    return add(list, "dd", text, name);
  }

  function decode(text) {
    var plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(plain, function (letter) { return letter.charCodeAt(0); });
  }

  function encode(buffer) {
    var bytes = new Uint8Array(buffer), plain = "";
    for (var at = 0; at < bytes.length; at += 1) { plain += String.fromCharCode(bytes[at]); }
    return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  function readHex(buffer) {
    return Array.from(new Uint8Array(buffer), function (byte) { return byte.toString(16).padStart(2, "0"); }).join("");
  }

  function hashText(text) {
    return crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)).then(readHex);
  }

  // Return the texts behind #: deflated, so that most plans fit into the address of a button.
  async function readFragment() {
    var fields = new URLSearchParams(location.hash.slice(1));
    var reader = new Blob([decode(fields.get("plan"))]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    var parts = [], size = 0;
    for (var next = await reader.read(); !next.done; next = await reader.read()) {
      parts.push(next.value);
      size += next.value.length;
      if (size > MOST_BYTES) { throw new Refusal("The plan is too long."); }
    }
    var texts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(await new Blob(parts).arrayBuffer()));
    return { document: String(texts.document), sections: texts.sections.map(String), person: fields.get("person") || "", then: fields.get("then") || "", reason: fields.get("reason") || "" };
  }

  // Return the texts of the file of an offline plan: docs/offline.md has the format.
  async function readFile(file) {
    if (file.size > MOST_BYTES) { throw new Refusal("The file is too long for a plan."); }
    var lines = (await file.text()).replace(/\r\n/g, "\n").split("\n"), texts = { d: "", s: "" };
    if (lines[0] !== "keyturn-offline 1") { throw new Refusal("This is no offline plan: its first line is not “keyturn-offline 1”."); }
    lines.forEach(function (line) {
      if (/^[ds] /.test(line)) { texts[line[0]] += line.slice(2) + "\n"; }
    });
    return { document: texts.d, sections: [texts.s] };
  }

  function split(text, order) {
    if (!text.endsWith("\n") || text.includes("\r")) { throw new Refusal("A text of the plan does not end as it must."); }
    var reached = 0, used = {};
    return text.slice(0, -1).split("\n").map(function (line) {
      var blank = line.indexOf(" "), key = blank < 0 ? line : line.slice(0, blank);
      if (!key || INVISIBLE.test(line.replace(JOINERS, ""))) { throw new Refusal("The plan holds a line that cannot be shown: " + line.slice(0, 80).replace(INVISIBLE, "\ufffd")); }
      var rank = order.findIndex(function (one) { return one === key || (Array.isArray(one) && one.includes(key)); });
      if (rank < reached || (used[key] && !REPEATED.includes(key))) {
        throw new Refusal("The plan holds a line that this page does not know in this place: " + line.slice(0, 80));
      }
      reached = rank;
      used[key] = true;
      return { key: key, text: blank < 0 ? "" : line.slice(blank + 1) };
    });
  }

  function splitSection(text) {
    var head = "keyturn-section 1\n";
    if (!text.startsWith(head)) { throw new Refusal("A part of the plan has another version than this page knows."); }
    return text.slice(head.length).split(/^(?=step(?: |$))/m).map(function (step) {
      if (!/^step( |$)/m.test(step)) { throw new Refusal("A part of the plan does not begin with a step."); }
      return split(step, STEP_ORDER);
    });
  }

  function list(lines, key) {
    return lines.filter(function (line) { return line.key === key; }).map(function (line) { return line.text; });
  }

  function get(lines, key) { return list(lines, key).join("\n"); }

  function showTime(seconds) {
    return new Date(Number(seconds) * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "long" });
  }

  function quote(word) {
    return /^[\w@%+=:,.\/-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'";
  }

  function showCommand(parent, lines, prefix, words) {
    var argv = list(lines, words), input = get(lines, prefix + "in");
    if (argv.length) { add(parent, "pre", argv.map(quote).join(" ")); }
    if (input) {
      add(parent, "p", "It is given this text:", "soft");
      add(parent, "pre", input);
    }
    ["call", "body", "enter"].forEach(function (key) {
      if (get(lines, prefix + key)) { add(parent, "pre", get(lines, prefix + key)); }
    });
    var more = Object.keys(CONDITIONS).filter(function (key) { return get(lines, prefix + key); });
    if (more.length) {
      add(parent, "p", more.map(function (key) { return CONDITIONS[key].replace("%", get(lines, prefix + key)); }).join(" · "), "soft");
    }
  }

  function showStep(parent, lines, number) {
    add(parent, "h3", number + ". " + get(lines, "step"));
    if (get(lines, "before") || get(lines, "after")) {
      add(parent, "pre", "− " + (get(lines, "before") || "(nothing)"), "before");
      add(parent, "pre", "+ " + (get(lines, "after") || "(nothing)"), "after");
    }
    showCommand(parent, lines, "", "do");
    var reason = list(lines, "no-undo");
    if (reason.length) {
      add(parent, "p", "It cannot be undone: " + reason[0], "warning");
    } else {
      add(parent, "p", get(lines, "undo-title") || "Undo:", "soft");
      showCommand(parent, lines, "undo-", "undo");
    }
    if (get(lines, "probation")) {
      add(parent, "p", "The host undoes it after " + get(lines, "probation") + " s unless Keyturn confirms that it still is reachable.");
    }
  }

  function showHead(plan, lines) {
    var values = [];
    lines.forEach(function (line) {
      if (line.key === "field") { values.push([line.text, []]); }
      if (line.key === "value") { values[values.length - 1][1].push(line.text); }
    });
    find("title").textContent = get(lines, "runbook");
    var facts = add(plan, "dl");
    values.forEach(function (one) { addFact(facts, one[0], one[1].join("\n") || "(empty)"); });
    addFact(facts, "Asked by", get(lines, "requested-by"));
    addFact(facts, "Reason", get(lines, "reason") || "(none)");
    addFact(facts, "Run", get(lines, "run") + " of " + get(lines, "installation"));
    addFact(facts, "Valid until", showTime(get(lines, "expires")));
    list(lines, "takes-down").forEach(function (leg) { addFact(facts, "Takes down", leg, "warning"); });
    [["may-take-down", "May take down"], ["undo-of", "Undoes run"], ["ticket", "Ticket"], ["schedule", "Schedule"], ["cron", "When"],
      ["zone", "Time zone"], ["replaces", "Replaces schedule"]].forEach(function (one) {
      if (get(lines, one[0])) { addFact(facts, one[1], get(lines, one[0])); }
    });
  }

  async function showPlan(given) {
    var plan = find("plan"), lines = split(given.document, DOCUMENT_ORDER);
    if (get(lines, "keyturn-plan") !== "1") { throw new Refusal("The plan has another version than this page knows."); }
    var hosts = list(lines, "host");
    if (hosts.length !== given.sections.length) { throw new Refusal("The plan does not come with the steps of each of its hosts."); }
    showHead(plan, lines);
    await showHosts(plan, given, lines);
    await showAll(plan, given, lines);
    var now = Date.now() / 1000;
    if (now >= Number(get(lines, "expires"))) { throw new Refusal("The plan has expired. Request it again."); }
    return get(lines, "run");
  }

  async function showHosts(plan, given, lines) {
    var steps = 0, at = 0;
    for (var line of lines) {
      if (line.key === "part") { add(plan, "p", line.text, "soft"); }
      if (line.key !== "host") { continue; }
      var words = line.text.split(" "), section = given.sections[at];
      if (await hashText(section) !== words[1]) { throw new Refusal("The steps for " + words[0] + " are not those of the plan. Do not sign it, and tell an administrator."); }
      add(plan, "h2", words[0]);
      add(plan, "p", "Host key " + words[2], "soft");
      splitSection(section).forEach(function (step) { steps += 1; showStep(plan, step, steps); });
      at += 1;
    }
  }

  async function showAll(plan, given, lines) {
    var all = add(plan, "details");
    add(all, "summary", "What is signed, line by line");
    var facts = add(all, "dl");
    addFact(facts, "SHA-256", await hashText(given.document), "mono");
    add(all, "pre", given.document);
    given.sections.forEach(function (text) { add(all, "pre", text); });
    addFact(facts, "Rules", list(lines, "rule").join(", "));
  }

  // What OpenSSH signs of a text: PROTOCOL.sshsig.
  async function buildChallenge(text) {
    var hash = new Uint8Array(await crypto.subtle.digest("SHA-512", new TextEncoder().encode(text)));
    return new Uint8Array(Array.from(new TextEncoder().encode("SSHSIG")).concat(packStrings(["keyturn-plan", "", "sha512", hash])));
  }

  // Return strings of the SSH protocol: the length of each, then its bytes.
  function packStrings(strings) {
    var bytes = [];
    strings.forEach(function (one) {
      var part = typeof one === "string" ? new TextEncoder().encode(one) : one;
      [24, 16, 8, 0].forEach(function (shift) { bytes.push((part.length >>> shift) & 255); });
      bytes.push.apply(bytes, part);
    });
    return bytes;
  }

  function send(fields) {
    var form = document.createElement("form");
    form.method = "post";
    form.action = KEYTURN + "/signatures";
    Object.keys(fields).forEach(function (name) {
      var input = document.createElement("input");
      input.type = "hidden";
      input.name = name;
      input.value = fields[name];
      form.appendChild(input);
    });
    document.body.appendChild(form);
    form.submit();
  }

  // Whether the device has to ask for a fingerprint or a PIN. Keyturn checks what it did.
  function getVerification() {
    return new URLSearchParams(location.hash.slice(1)).get("verify") === "yes" ? "required" : "preferred";
  }

  async function askKey(given) {
    var credential = await navigator.credentials.get({ publicKey: {
      challenge: await buildChallenge(given.document),
      rpId: location.hostname,
      userVerification: getVerification(),
      timeout: 120000,
    } });
    return {
      authenticator_data: encode(credential.response.authenticatorData),
      client_data: encode(credential.response.clientDataJSON),
      signature: encode(credential.response.signature),
    };
  }

  async function sign(given, run) {
    var more = { run: run, person: given.person, then: given.then, reason: find("reason").value };
    send(Object.assign(more, await askKey(given)));
  }

  // Show a signature, which is added to the file of the plan by the person who runs it.
  async function signOffline(given) {
    var signed = Object.values(await askKey(given)).join("."), plan = find("plan");
    plan.textContent = "";
    add(plan, "p", "Send this to the person who runs the plan. They type, with your id: keyturn offline sign PLAN --as YOU --passkey …");
    add(plan, "pre", signed).id = "signature";
    addCopyButton(add(plan, "div", undefined, "buttons"), "signature");
    find("button").hidden = true;
  }

  // Make a passkey of this page, and show its public key as OpenSSH writes it.
  async function makeKey(person) {
    var id = new TextEncoder().encode("keyturn " + person), challenge = crypto.getRandomValues(new Uint8Array(32));
    var made = await navigator.credentials.create({ publicKey: {
      rp: { name: "Keyturn plans", id: location.hostname },
      user: { id: id, name: person, displayName: person },
      challenge: challenge,
      pubKeyCredParams: [{ type: "public-key", alg: -7 }],
      authenticatorSelection: { residentKey: "required", userVerification: getVerification() },
      timeout: 120000,
    } });
    var point = new Uint8Array(made.response.getPublicKey()).slice(-65);
    var kind = "sk-ecdsa-sha2-nistp256@openssh.com";
    var blob = new Uint8Array(packStrings([kind, "nistp256", point, location.hostname]));
    var hash = new Uint8Array(await crypto.subtle.digest("SHA-256", blob));
    return {
      line: kind + " " + toBase64(blob) + " " + person + "@" + location.hostname,
      fingerprint: "SHA256:" + toBase64(hash).replace(/=+$/, ""),
    };
  }

  function toBase64(bytes) { return btoa(String.fromCharCode.apply(null, bytes)); }

  // What another person needs to vouch for a key.
  function writeForOwner(person, key) {
    return "Please add this key, with which " + person + " signs plans, to people.yaml of " + KEYTURN + ":\n\n"
      + "    signing_keys: [\"" + key.line + "\"]\n\n"
      + "First call " + person + " at a number that you know already, and have them read this fingerprint from their screen:\n\n"
      + "    " + key.fingerprint + "\n\n"
      + "`keyturn policy signers --table` prints the same fingerprint once the key is in people.yaml.\n";
  }

  function offerToOwner(plan, person, key) {
    var text = writeForOwner(person, key), facts = add(plan, "dl");
    addFact(facts, "Fingerprint", key.fingerprint, "mono").id = "fingerprint";
    addFact(facts, "Line", key.line, "mono").id = "key";
    add(plan, "p", "Send this to an owner, who calls you before adding the key:");
    add(plan, "pre", text).id = "request";
    var buttons = add(plan, "div", undefined, "buttons");
    addCopyButton(buttons, "request");
    var mail = add(buttons, "a", "Write a mail");
    mail.href = "mailto:?subject=" + encodeURIComponent("Signing key of " + person) + "&body=" + encodeURIComponent(text);
  }

  function addCopyButton(parent, id) {
    var copy = add(parent, "button", "Copy");
    copy.addEventListener("click", function () {
      navigator.clipboard.writeText(find(id).textContent).then(function () { copy.textContent = "Copied"; }, function () {
        getSelection().selectAllChildren(find(id));
      });
    });
  }

  function offerKey(person) {
    find("title").textContent = "Make a passkey for signing plans";
    var plan = find("plan");
    add(plan, "p", "It belongs to this page, " + location.origin + ", and to " + person + ". Its private half never leaves your device.");
    find("act").hidden = false;
    find("button").textContent = "Make a passkey";
    find("button").addEventListener("click", function () {
      find("status").textContent = "Touch your key.";
      makeKey(person).then(function (key) {
        find("status").textContent = "Your key is made. It counts once another person has added it to people.yaml.";
        offerToOwner(plan, person, key);
        find("button").hidden = true;
      }, function (error) { find("status").textContent = sayKeyError(error); });
    });
  }

  function offerFile() {
    var plan = find("plan"), label = add(plan, "label", "Open this page with the button “Sign…” of a run, or choose the file of an offline plan:");
    var input = add(plan, "input");
    label.htmlFor = input.id = "file";
    input.type = "file";
    input.addEventListener("change", function () { openFile(input.files[0]).catch(refuse); });
  }

  async function openFile(file) {
    var given = await readFile(file);
    find("plan").textContent = "";
    if (await showPlan(given) !== "0") { throw new Refusal("This is the plan of a run, and no offline plan."); }
    find("destination").textContent = "Your signature is good for exactly this plan, once. You send it yourself.";
    find("act").hidden = false;
    find("button").addEventListener("click", function () { touch(signOffline(given)); });
  }

  function touch(signed) {
    find("button").disabled = true;
    find("status").textContent = "Touch your key.";
    signed.then(function () { find("status").textContent = "Signed."; }, function (error) {
      find("button").disabled = false;
      find("status").textContent = sayKeyError(error);
    });
  }

  function sayKeyError(error) {
    return error.name === "NotAllowedError" ? "No answer from the key. Press the button to try again." : error.message;
  }

  function report(error) {
    find("problem").textContent = error instanceof Refusal ? error.message
      : "The plan in the address is not complete. Open this page again with the button “Sign…” of the run.";
    find("problem").hidden = false;
  }

  async function start() {
    if (window.top !== window) { throw new Refusal("This page signs nothing inside of another page."); }
    if (!window.PublicKeyCredential) { throw new Refusal("This browser has no passkeys here. Use another one, or sign with `keyturn sign` in a terminal."); }
    var person = new URLSearchParams(location.hash.slice(1)).get("new");
    if (person) { offerKey(person); return; }
    if (!new URLSearchParams(location.hash.slice(1)).get("plan")) { offerFile(); return; }
    var given = await readFragment(), run = await showPlan(given);
    find("destination").textContent = "Your signature is good for exactly this plan, once. It goes to " + KEYTURN + ".";
    find("back").href = KEYTURN + "/runs/" + run;
    find("back").hidden = find("act").hidden = false;
    find("reason").parentElement.hidden = !given.reason;
    if (given.reason === "required") { find("reason-label").textContent = "Reason (required)"; }
    find("button").addEventListener("click", function () {
      if (given.reason === "required" && !find("reason").value.trim()) {
        find("status").textContent = "Enter why you approve: the policy requires a reason.";
        find("reason").focus();
        return;
      }
      touch(sign(given, run));
    });
  }

  window.addEventListener("hashchange", function () { location.reload(); });
  start().catch(refuse);

  function refuse(error) {
    find("act").hidden = find("plan").hidden = true;
    find("title").textContent = "Sign a plan";
    report(error);
  }
})();
