// Security keys speak only to scripts: ours asks the key and sends what it says by an ordinary form.
(function () {
  "use strict";

  function bytes(text) {
    var plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(plain, function (letter) { return letter.charCodeAt(0); });
  }

  function text(buffer) {
    var plain = String.fromCharCode.apply(null, new Uint8Array(buffer));
    return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  function described(keys) {
    return (keys || []).map(function (key) { return Object.assign({}, key, { id: bytes(key.id) }); });
  }

  function make(options) {
    options.challenge = bytes(options.challenge);
    options.user.id = bytes(options.user.id);
    options.excludeCredentials = described(options.excludeCredentials);
    return navigator.credentials.create({ publicKey: options });
  }

  function sign(options) {
    options.challenge = bytes(options.challenge);
    options.allowCredentials = described(options.allowCredentials);
    return navigator.credentials.get({ publicKey: options });
  }

  function written(credential) {
    var response = {};
    ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"].forEach(function (name) {
      if (credential.response[name]) { response[name] = text(credential.response[name]); }
    });
    return JSON.stringify({ id: credential.id, rawId: text(credential.rawId), type: credential.type, response: response });
  }

  function asked(form) {
    return fetch(form.dataset.options, { method: "POST" }).then(function (answer) {
      return answer.json().then(function (said) {
        if (!answer.ok) { throw new Error(said.why); }
        return said;
      });
    });
  }

  document.querySelectorAll("form[data-key]").forEach(function (form) {
    var trouble = form.querySelector("[data-trouble]");
    if (!window.PublicKeyCredential) {
      trouble.textContent = "This browser cannot use security keys.";
      trouble.hidden = false;
      return;
    }
    form.querySelector("button").hidden = false;
    form.addEventListener("submit", function (event) {
      if (form.elements.credential.value) { return; }
      event.preventDefault();
      trouble.hidden = true;
      asked(form).then(form.dataset.key === "make" ? make : sign).then(function (credential) {
        form.elements.credential.value = written(credential);
        form.submit();
      }).catch(function (error) {
        trouble.textContent = error.name === "NotAllowedError" || error.name === "AbortError"
          ? "The key was not used. Press the button to try again."
          : error.name === "InvalidStateError" ? "This key is enrolled already." : error.message;
        trouble.hidden = false;
      });
    });
  });
})();
