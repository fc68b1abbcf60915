package admin

import (
	"crypto/hmac"
	"net/http"

	"github.com/weirhq/weir/internal/edge/problem"
)

const maxFormBytes = 64 << 10

// ownForm lets posts through that one of our own pages sent: the browser says where a post comes from, and the form
// carries a key of its person. A program that shows the token has no session that another site could ride on.
func (a *Admin) ownForm(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, who person) {
		if err := a.own.Check(r); err != nil {
			a.foreign(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
		if err := r.ParseForm(); err != nil {
			a.fault(w, r, who, http.StatusBadRequest, "This form can't be read", "Go back and send it again.")
			return
		}
		if who.via != byToken && !hmac.Equal([]byte(a.guard.formKey(who)), []byte(r.PostForm.Get("key"))) {
			a.fault(w, r, who, http.StatusForbidden, "This form was not sent from its page",
				"Nothing was changed. Open the page again and send it from there: a form is good for the session in which it was opened.")
			return
		}
		h(w, r, who)
	}
}

// foreign answers a post that another site's page sent.
func (a *Admin) foreign(w http.ResponseWriter, r *http.Request) {
	a.log.Warn("a post from another site was refused", "from", r.RemoteAddr)
	problem.New(http.StatusForbidden, "cross_site", "Refused", "The request was sent by a page of another site. Nothing was changed.").Write(w)
}

// done ends an action: the page that it leads to says what came of it, once.
func (a *Admin) done(w http.ResponseWriter, r *http.Request, to, text string) {
	setCookie(w, r, saidCookie, a.guard.sealFlash(flash{"good", text}), saidLife)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// said takes what the action before has left for this page.
func (a *Admin) said(w http.ResponseWriter, r *http.Request) flash {
	c, err := r.Cookie(saidCookie)
	if err != nil || r.Method != http.MethodGet {
		return flash{}
	}
	setCookie(w, r, saidCookie, "", 0)
	return a.guard.openFlash(c.Value)
}
