// Moves the numbers of a usage page. The page is complete without it.
(function () {
  "use strict";
  var body = document.body, shown = {}, again = 30000, longest = 60000, quiet;

  function put(id, html) {
    var at = document.getElementById(id);
    // Nobody loses the place where he is typing or reading with the keyboard.
    if (!at || shown[id] === html || at.contains(document.activeElement)) return;
    shown[id] = html;
    var open = Array.prototype.map.call(at.querySelectorAll("details[open]"), function (d) { return d.id; });
    at.innerHTML = html;
    open.forEach(function (d) { var e = document.getElementById(d); if (e) e.open = true; });
  }

  function typing() {
    var e = document.activeElement;
    return e && e.tagName === "INPUT" && e.value !== e.defaultValue;
  }

  function say(text) { document.getElementById("announce").textContent = text; }

  // A stream tells every 5 seconds of when the numbers are. One that has told nothing for a minute is down, or what it
  // reads from is: the page says so in words.
  function fresh() {
    body.classList.add("on");
    body.classList.remove("off");
    clearTimeout(quiet);
    quiet = setTimeout(stale, longest);
  }

  function stale() {
    var note = document.querySelector(".stale");
    clearTimeout(quiet);
    body.classList.remove("on");
    if (!body.classList.contains("off") && note) say(note.textContent);
    body.classList.add("off");
  }

  function listen() {
    var stream = new EventSource(body.dataset.live);
    stream.onopen = fresh;
    stream.onmessage = function (m) {
      fresh();
      var news = JSON.parse(m.data);
      if (news.period !== body.dataset.period) { // another plan or period: other features, other forms
        if (!typing()) location.reload();
        return;
      }
      Object.keys(news.parts).forEach(function (id) {
        if (id === "announce") return;
        put(id, news.parts[id]);
      });
      // Told once when it changes, not with every number.
      if (shown.announce !== undefined && shown.announce !== news.parts.announce) say(news.parts.announce);
      shown.announce = news.parts.announce;
    };
    stream.onerror = function () {
      body.classList.remove("on");
      if (stream.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
      stale();
      setTimeout(listen, again); // refused: too many watch, or the link is over
    };
  }

  if (window.EventSource) listen();
})();
