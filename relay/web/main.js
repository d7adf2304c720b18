// The page: which view is shown, and what stands above every view.

import { el, text } from "./dom.js";
import * as api from "./api.js";
import { LoginForm } from "./login.js";
import { RunsPage } from "./runs.js";
import { RunPage } from "./run.js";
import { staleAfter } from "./stream.js";
import { since } from "./format.js";

const content = document.getElementById("content");
const crumbs = document.getElementById("crumbs");
const contact = document.getElementById("contact");
const account = document.getElementById("account");
const loginPlace = document.getElementById("login");
const toasts = document.getElementById("toasts");

let view = null;

// The page that a view sees.
const page = {
  crumb(node) {
    crumbs.replaceChildren(node ?? "");
  },
  title(s) {
    document.title = s ? `${s} – cbcast` : "cbcast";
  },
  contact(c) {
    contact.className = "contact " + c.state;
    text(contact, contactText(c));
  },
  toast(message, bad = false) {
    const t = el(bad ? "p.toast.bad" : "p.toast", {}, message);
    toasts.append(t);
    setTimeout(() => t.remove(), bad ? 10_000 : 5000);
  },
  login: () => showLogin(true),
};

function contactText(c) {
  switch (c.state) {
    case "live":
      return "live";
    case "connecting":
      return "connecting …";
    case "stale":
      return `stale: nothing heard for ${since(c.silent)}`;
    case "away": {
      const silent = c.silent > staleAfter ? `, nothing heard for ${since(c.silent)}` : "";
      return `no connection, trying again${silent}`;
    }
    case "ended":
      return "ended";
    case "refused":
      return "no rights";
    case "missing":
      return "not found";
    default:
      return "";
  }
}

function route() {
  view?.close();
  const run = /^#\/run\/([^/?]+)/.exec(location.hash);
  page.crumb(null);
  contact.className = "contact";
  text(contact, "");
  content.replaceChildren();
  let id = "";
  try {
    id = run ? decodeURIComponent(run[1]) : "";
  } catch { /* a broken address is the list's */ }
  view = id ? new RunPage(page, id) : new RunsPage(page);
  content.append(view.node);
  scrollTo(0, 0);
}

function showLogin(asked = false) {
  if (loginPlace.firstChild && !asked) return;
  const form = new LoginForm({
    needed: !api.may("read"),
    done() {
      loginPlace.replaceChildren();
      route();
    },
    cancel: () => loginPlace.replaceChildren(),
  });
  loginPlace.replaceChildren(form.node);
  form.focus();
}

function showAccount() {
  if (api.session.cookie) {
    account.replaceChildren(
      el("span.who", { title: "scopes: " + api.session.scopes.join(", ") }, api.session.name || "logged in"),
      el("button.quiet", { type: "button", onclick: logout }, "Log out"),
    );
  } else if (api.may("read") && !api.may("command") && !api.may("answer")) {
    account.replaceChildren(el("span.who", { title: "Reading is free on this machine; acting needs a token" }, "read only"), el("button.quiet", { type: "button", onclick: () => showLogin(true) }, "Log in"));
  } else account.replaceChildren();
}

async function logout() {
  try {
    await api.logout();
  } catch (e) {
    page.toast(api.explain(e), true);
  }
  route();
}

api.events.addEventListener("refused", async () => {
  await api.whoAmI().catch(() => {});
  showLogin();
});
api.events.addEventListener("session", showAccount);
addEventListener("hashchange", route);

try {
  await api.whoAmI();
} catch { /* the view says that nothing answers */ }
showAccount();
if (!api.may("read")) showLogin();
route();
