package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/link"
)

// catalogue is the published catalog as it was last read.
type catalogue struct {
	number int64
	plans  *plans.Catalog
}

// catalogNow is the catalog that counts, at most catalogFresh old.
func (p *Pages) catalogNow(ctx context.Context) (*plans.Catalog, error) {
	p.mu.Lock()
	c, at := p.catalog, p.readAt
	p.mu.Unlock()
	if c.plans != nil && time.Since(at) < catalogFresh {
		return c.plans, nil
	}
	read, err := usage.LatestCatalog(ctx, p.cfg.DB)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if read.Number >= p.catalog.number {
		p.catalog, p.readAt = catalogue{read.Number, read.Catalog}, time.Now()
	}
	return p.catalog.plans, nil
}

// statement reads an account's numbers, in one snapshot, when it is this call's turn.
func (p *Pages) statement(ctx context.Context, account string) (builder, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	done, err := p.turn(ctx)
	if err != nil {
		return builder{}, fmt.Errorf("wait for a turn: %w", err)
	}
	defer done()
	cat, err := p.catalogNow(ctx)
	if err != nil {
		return builder{}, err
	}
	s, err := books.ReadStatement(ctx, p.cfg.DB, account, p.cfg.Clock.Now())
	if err != nil {
		return builder{}, err
	}
	return builder{s: s, cat: cat}, nil
}

// open is the account that a link names, or the answer of why it opens nothing.
func (p *Pages) open(w http.ResponseWriter, token string) (account string, until time.Time, ok bool) {
	if p.cfg.Links == nil {
		p.fault(w, http.StatusForbidden, "Links are off", "This installation has no secret to check links with: its operator sets WEIR_SECRET.")
		return "", time.Time{}, false
	}
	account, until, err := p.cfg.Links.Open(token, p.cfg.WallClock())
	switch {
	case errors.Is(err, link.ErrExpired):
		p.fault(w, http.StatusForbidden, "This link has expired", "Open the page again from the application that sent you here: it makes a new link.")
	case err != nil:
		p.fault(w, http.StatusForbidden, "This link opens nothing", "It is not complete, or was not made here. Open the page again from the application that sent you here.")
	}
	return account, until, err == nil
}

func (p *Pages) usage(w http.ResponseWriter, r *http.Request) {
	token, asJSON := strings.CutSuffix(r.PathValue("token"), ".json")
	private(w)
	account, _, ok := p.open(w, token)
	if !ok {
		return
	}
	b, err := p.statement(r.Context(), account)
	if err != nil {
		p.failed(w, err)
		return
	}
	if asJSON {
		p.writeJSON(w, b.json())
		return
	}
	v := b.page()
	p.complete(&v, token)
	saved := r.URL.Query().Get("saved")
	for i := range v.Features {
		if c := v.Features[i].Cap; c != nil {
			c.Saved = saved != "" && saved == v.Features[i].ID
		}
	}
	p.render(w, http.StatusOK, "usage.html", v)
}

// complete adds what a loaded page has beside its live parts.
func (p *Pages) complete(v *page, token string) {
	v.Self, v.Assets = "/usage/"+token, p.views.assets
	for i := range v.Features {
		if c := v.Features[i].Cap; c != nil {
			c.Action = v.Self + "/cap"
			c.Key = p.cfg.Links.FormKey(token, capFormName)
		}
	}
}

// private keeps a page out of every cache and index.
func private(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Robots-Tag", "noindex, nofollow")
}

// failed answers for an error of the database. Its text goes to the log, never to a page.
func (p *Pages) failed(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		return // nobody waits any more
	}
	p.log.Warn("a page could not be made", "error", err)
	w.Header().Set("Retry-After", "5")
	p.fault(w, http.StatusServiceUnavailable, "Not available at the moment", "The numbers can't be read now. Nothing is lost: reload the page in a few seconds.")
}

type faultView struct {
	Title, Text string
	Assets      assetNames
}

func (p *Pages) fault(w http.ResponseWriter, status int, title, text string) {
	p.render(w, status, "fault.html", faultView{title, text, p.views.assets})
}
