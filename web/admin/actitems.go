package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/usage"
)

// itemRoutes registers what is done about a finding and a node, in the way of an account's actions.
func (a *Admin) itemRoutes() {
	a.get("GET /admin/findings/{id}/clear", a.itemForm(a.clearPage))
	a.post("POST /admin/findings/{id}/clear", a.itemAct(a.clearPage))
	a.get("GET /admin/nodes/{id}/give-up", a.itemForm(a.giveUpPage))
	a.post("POST /admin/nodes/{id}/give-up", a.itemAct(a.giveUpPage))
}

// itemPage makes the page of an action on one item, and the action. An item that is not there is usage.ErrNotFound; its
// page can say what became of a form that is sent again.
type itemPage func(ctx context.Context, id int64) (*actView, billing.Action, error)

func (a *Admin) itemForm(page itemPage) handler {
	return func(w http.ResponseWriter, r *http.Request, who person) {
		v, _, err := a.item(r, page)
		if err != nil {
			a.failed(w, r, who, err)
			return
		}
		a.showAct(w, r, who, http.StatusOK, v)
	}
}

func (a *Admin) itemAct(page itemPage) handler {
	return func(w http.ResponseWriter, r *http.Request, who person) {
		v, action, err := a.item(r, page)
		sent := r.PostForm.Get("step") == "do" && v != nil && errors.Is(err, usage.ErrNotFound)
		if err != nil && !sent {
			a.failed(w, r, who, err)
			return
		}
		v.Form = r.PostForm.Get("form")
		a.acting(w, r, who, v, action, true)
	}
}

func (a *Admin) item(r *http.Request, page itemPage) (v *actView, action billing.Action, err error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, nil, usage.ErrNotFound
	}
	err = a.reading(r.Context(), func(ctx context.Context) (err error) {
		v, action, err = page(ctx, id)
		return err
	})
	return v, action, err
}

func (a *Admin) clearPage(ctx context.Context, id int64) (*actView, billing.Action, error) {
	name := strconv.FormatInt(id, 10)
	v := &actView{
		Name: "finding " + name, Back: "the findings", Path: "/admin/findings", Self: "/admin/findings/" + name + "/clear", Title: "Clear a finding", Section: "findings",
		Text: "For what you have settled in a way that Weir can't see. It mends nothing: a cause that is mended clears its finding by itself, and what is found again opens again.",
	}
	f, err := books.ReadFinding(ctx, a.cfg.DB, id)
	if err == nil {
		v.Name = a.remedy(f.Kind).Title
		v.About = f.Message
		v.Path += "?kind=" + f.Kind
	}
	return v, &billing.ClearFinding{ID: id}, err
}

func (a *Admin) giveUpPage(ctx context.Context, id int64) (*actView, billing.Action, error) {
	v := &actView{
		Name: "node " + strconv.FormatInt(id, 10), Path: nodePath(id), Self: nodePath(id) + "/give-up", Title: "Give up a node", Section: "nodes", Danger: true,
		Text: "Only where its journal is lost for good: nothing waits for it any more, and what it had not flushed is counted nowhere. Where the journal's folder is there, start an enforcer or a worker on it instead: nothing is lost then.",
	}
	n, err := books.ReadNode(ctx, a.cfg.DB, id, a.now(), 0)
	if err == nil {
		x := nodeOf(&n.Nodes[0], n.LeaseTime, books.NodeCount)
		v.About = "It is " + x.State + ", was last heard of " + x.Silent + " ago, holds leases: " + x.Leases + ", and ended periods that wait for it: " + x.Holds + "."
	}
	return v, &billing.GiveUpNode{Node: id}, err
}
