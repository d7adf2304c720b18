// The form for a token. The relay turns it into a cookie that no script can read; the page forgets it.

import { el, text } from "./dom.js";
import { explain, login } from "./api.js";

export class LoginForm {
  constructor({ needed, done, cancel }) {
    this.token = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
    this.trouble = el("p.trouble", { role: "alert" });
    this.submit = el("button.primary", { type: "submit" }, "Log in");
    this.node = el("form.login.card", { onsubmit: (e) => this.send(e), "aria-label": "Log in" },
      el("h2", {}, needed ? "This relay wants a token" : "Log in to act"),
      el("p.dim", {}, needed
        ? "Everything here needs a token of this relay."
        : "Reading is free on this machine. To answer and to command, give a token of this relay: cbcast up names the file that it is in."),
      el("div.field", {}, el("label", { for: "token" }, "Token"), this.token),
      this.trouble,
      el("div.buttons", {}, this.submit, needed ? null : el("button", { type: "button", onclick: cancel }, "Cancel")));
    this.done = done;
  }

  focus() {
    this.token.focus();
  }

  async send(e) {
    e.preventDefault();
    const token = this.token.value.trim();
    this.submit.disabled = true;
    text(this.trouble, "");
    try {
      await login(token);
      this.token.value = "";
      this.done();
    } catch (err) {
      text(this.trouble, err.status === 401 ? "The relay does not know this token, or it has expired." : explain(err));
      this.token.select();
    } finally {
      this.submit.disabled = false;
    }
  }
}
