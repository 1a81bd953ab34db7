// Security keys need JavaScript: asks the key, then submits its response with an ordinary form.
(function () {
  "use strict";

  function decode(text) {
    var plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(plain, function (letter) { return letter.charCodeAt(0); });
  }

  function encode(buffer) {
    var plain = String.fromCharCode.apply(null, new Uint8Array(buffer));
    return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  function decodeIds(keys) {
    return (keys || []).map(function (key) { return Object.assign({}, key, { id: decode(key.id) }); });
  }

  function createKey(options) {
    options.challenge = decode(options.challenge);
    options.user.id = decode(options.user.id);
    options.excludeCredentials = decodeIds(options.excludeCredentials);
    return navigator.credentials.create({ publicKey: options });
  }

  function signChallenge(options) {
    options.challenge = decode(options.challenge);
    options.allowCredentials = decodeIds(options.allowCredentials);
    return navigator.credentials.get({ publicKey: options });
  }

  function serialise(credential) {
    var response = {};
    ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"].forEach(function (name) {
      if (credential.response[name]) { response[name] = encode(credential.response[name]); }
    });
    return JSON.stringify({ id: credential.id, rawId: encode(credential.rawId), type: credential.type, response: response });
  }

  function fetchOptions(form) {
    return fetch(form.dataset.options, { method: "POST" }).then(function (response) {
      return response.json().then(function (data) {
        if (!response.ok) { throw new Error(data.error); }
        return data;
      });
    });
  }

  document.querySelectorAll("form[data-key]").forEach(function (form) {
    var message = form.querySelector("[data-error]");
    if (!window.PublicKeyCredential) {
      message.textContent = "This browser does not support security keys.";
      message.hidden = false;
      return;
    }
    form.querySelector("button").hidden = false;
    form.addEventListener("submit", function (event) {
      if (form.elements.credential.value) { return; }
      event.preventDefault();
      message.hidden = true;
      fetchOptions(form).then(form.dataset.key === "make" ? createKey : signChallenge).then(function (credential) {
        form.elements.credential.value = serialise(credential);
        form.submit();
      }).catch(function (error) {
        message.textContent = error.name === "NotAllowedError" || error.name === "AbortError"
          ? "No response from the key. Press the button to try again."
          : error.name === "InvalidStateError" ? "This key is already enrolled." : error.message;
        message.hidden = false;
      });
    });
  });
})();
