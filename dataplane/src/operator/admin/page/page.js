"use strict";
(() => {
  const root = document.documentElement;
  const main = () => document.getElementById("main");
  const live = document.getElementById("live");
  root.classList.add("script");

  // Light or dark: as the system has it, until somebody chooses.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const kept = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* It lasts for this page then. */ }
    label();
  });
  dark.addEventListener("change", label);
  label();

  const say = (state, text) => {
    live.className = state;
    if (live.textContent !== text) live.textContent = text;
  };

  // Without a name and a secret that somebody wrote into the address: a script may not fetch such a one.
  const at = (address) => location.origin + address;
  const here = () => location.pathname + location.search;

  // What is shown changes without a reload: the same page is fetched, and its main part taken over.
  let turn = 0;
  const take = async (address, options, remember) => {
    const mine = ++turn;
    const answer = await fetch(at(address), options);
    const text = await answer.text();
    if (mine !== turn) return;
    const fresh = answer.ok && new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!fresh) { note(text.slice(0, 300) || answer.statusText); return; }
    if (remember) history.pushState(null, "", at(address));
    const search = document.activeElement && document.activeElement.name === "q" && document.activeElement;
    const typed = search && [search.value, search.selectionStart];
    main().replaceWith(document.adoptNode(fresh));
    if (typed) {
      const field = main().querySelector('[name="q"]');
      field.value = typed[0];
      field.focus();
      field.setSelectionRange(typed[1], typed[1]);
    }
  };
  const go = (address, remember) => take(address, {}, remember).then(listen, lost);
  const note = (text) => {
    const line = document.createElement("p");
    line.className = "note bad";
    line.setAttribute("role", "status");
    line.textContent = text;
    main().prepend(line);
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("main .show a, main .pages a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const isPage = link.closest("#main > .pages");
    go(link.getAttribute("href"), true).then(() => {
      if (isPage) document.getElementById("list").scrollIntoView();
    });
  });
  const searched = (form) => {
    const words = new URLSearchParams(new FormData(form));
    if (!words.get("q")) words.delete("q");
    const text = words.toString();
    return text ? "/?" + text : "/";
  };
  let typing;
  document.addEventListener("input", (event) => {
    if (event.target.name !== "q") return;
    clearTimeout(typing);
    typing = setTimeout(() => go(searched(event.target.form), true), 200);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    event.preventDefault();
    if (form.method !== "post") { clearTimeout(typing); go(searched(form), true); return; }
    const words = new URLSearchParams(new FormData(form));
    words.set("action", event.submitter.value);
    take(form.getAttribute("action"), { method: "POST", body: words }, false).then(listen, lost);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    main().querySelector('[name="q"]').focus();
  });
  addEventListener("popstate", () => go(here(), false));

  // Once a second: what has changed, cell by cell.
  let source, heard = 0, refetched = 0;
  const listen = () => {
    if (source) source.close();
    const words = location.pathname.slice(1) + location.search;
    source = new EventSource(at("/events") + (words.startsWith("?") ? words : "?" + words));
    source.onmessage = (event) => {
      heard = Date.now();
      say("on", "live");
      const told = JSON.parse(event.data);
      if (told.shape !== main().dataset.shape) {
        // Other lines than before: the table has changed, or what matches the filter.
        if (Date.now() - refetched < 1000 || main().querySelector(".pick :checked")) return;
        refetched = Date.now();
        take(here(), {}, false).catch(lost);
        return;
      }
      for (const [id, name, cells] of told.lines) {
        const line = document.getElementById(id);
        if (!line) continue;
        if (line.className !== name) line.className = name;
        for (const [place, html] of cells) {
          const cell = line.children[place];
          if (cell && cell.innerHTML !== html) cell.innerHTML = html;
        }
      }
    };
    source.addEventListener("end", () => lost("it has ended"));
    source.onerror = () => {
      lost("no answer");
      // A browser tries again by itself, unless it was told no.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => go(here(), false), 5000);
    };
  };
  const lost = (why) => {
    const since = heard ? " since " + new Date(heard).toLocaleTimeString() : "";
    say("off", (typeof why === "string" ? why : "no answer") + since);
  };
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
})();
