package warnings_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/warnings"
)

const planFile = `
default_plan: free
upgrade_url: https://example.com/upgrade
features: {events: {unit: event}}
plans: {free: {display_name: Free, quota: {events: 100}, on_exceeded: block}}
`

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

type still time.Time

func (s still) Now() time.Time { return time.Time(s) }

// world is a database in which nodes reach thresholds.
type world struct {
	*testing.T
	db *pgxpool.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t, schematest.Pool(t)}
	usagetest.Publish(t, w.db, planFile, noon.AddDate(-1, 0, 0))
	return w
}

// use counts units of an account on a node of its own, and folds.
func (w *world) use(account string, units int64) {
	w.Helper()
	usagetest.Register(w, w.db, "node", noon).Use(account, "events", units, noon)
	usagetest.Fold(w, w.db)
}

func (w *world) courier(cfg warnings.Config) *warnings.Courier {
	w.Helper()
	cfg.DB, cfg.Clock, cfg.Logger, cfg.Settle = w.db, still(noon), slog.New(slog.DiscardHandler), -1
	c, err := warnings.New(cfg)
	require.NoError(w, err)
	return c
}

func (w *world) exec(sql string) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql)
	require.NoError(w, err)
}

func (w *world) states() (all string) {
	w.Helper()
	require.NoError(w, w.db.QueryRow(w.Context(),
		"SELECT coalesce(string_agg(channel || ' ' || state || ' ' || attempts, ', ' ORDER BY warning, channel), '') FROM weir.warning_sends").Scan(&all))
	return all
}

// receiver is the host's endpoint: it keeps what it is sent and answers with a status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []message
}

type message struct {
	header http.Header
	body   []byte
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusNoContent}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.got = append(r.got, message{req.Header.Clone(), body})
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// take is what came since.
func (r *receiver) take() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.got
	r.got = nil
	return all
}

func (r *receiver) hook(t *testing.T) *warnings.Webhook {
	t.Helper()
	h, err := warnings.NewWebhook(r.URL+"/hook", secret)
	require.NoError(t, err)
	return h
}

func verify(t *testing.T, m message) {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, wh.Verify(m.body, m.header))
}
