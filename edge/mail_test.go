package edge_test

import (
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/warnings"
)

// postbox is an SMTP server that keeps what it takes.
type postbox struct {
	mu   sync.Mutex
	got  []letter
	fail int // so many are refused for now
}

type letter struct {
	to   []string
	data string
}

type session struct {
	box *postbox
	to  []string
}

func (p *postbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{box: p}, nil }
func (s *session) Mail(string, *smtp.MailOptions) error        { return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error   { s.to = append(s.to, to); return nil }
func (s *session) Reset()                                      { s.to = nil }
func (s *session) Logout() error                               { return nil }
func (s *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.box.fail > 0 {
		s.box.fail--
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again"}
	}
	s.box.got = append(s.box.got, letter{s.to, string(b)})
	return nil
}

// take is what came since.
func (p *postbox) take() []letter {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.got
	p.got = nil
	return all
}

func newPostbox(t *testing.T) (*postbox, string) {
	t.Helper()
	box := &postbox{}
	server := smtp.NewServer(box)
	server.Domain = "localhost"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return box, "smtp://" + l.Addr().String() + "?tls=off"
}

func (w *world) courier(server string) *warnings.Courier {
	w.Helper()
	m, err := warnings.NewMail(warnings.MailConfig{Server: server, From: "Example Billing <billing@example.com>"})
	require.NoError(w, err)
	c, err := warnings.New(warnings.Config{
		DB: w.db, Clock: w.clock, Logger: slog.New(slog.DiscardHandler), Mail: m, Settle: -1,
		PageURL: func(account string) string { return "https://usage.example.com/usage/of-" + account },
	})
	require.NoError(w, err)
	return c
}

// parts are subject, text and HTML of a letter.
func parts(t *testing.T, l letter) (header mail.Header, plain, rich string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(l.data))
	require.NoError(t, err)
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/alternative", kind)
	r := multipart.NewReader(m.Body, params["boundary"])
	read := func(kind string) string {
		p, err := r.NextRawPart()
		require.NoError(t, err)
		require.Contains(t, p.Header.Get("Content-Type"), kind)
		require.Equal(t, "quoted-printable", p.Header.Get("Content-Transfer-Encoding"))
		b, err := io.ReadAll(quotedprintable.NewReader(p))
		require.NoError(t, err)
		return string(b)
	}
	return m.Header, read("text/plain"), read("text/html")
}

// A burst on three nodes crosses both thresholds; eight workers look; one mail arrives.
func TestABurstOverBothThresholdsIsOneMail(t *testing.T) {
	w := newWorld(t)
	box, server := newPostbox(t)
	require.NoError(t, usage.SetContact(t.Context(), w.db, "acme", "ops@acme.example", "test", now))
	for _, units := range []int64{7_000, 1_500, 1_600} { // one node after the other, folded in between
		w.node = usagetest.Register(t, w.db, "node", now)
		w.use("acme", "requests", units, now)
		w.fold()
	}
	c := w.courier(server)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Deliver(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := box.take()
	require.Len(t, got, 1)
	require.Equal(t, []string{"ops@acme.example"}, got[0].to)
	header, plain, rich := parts(t, got[0])
	subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, "API requests: everything included is used", subject)
	require.Equal(t, `"Example Billing" <billing@example.com>`, header.Get("From"))
	require.Contains(t, header.Get("Message-Id"), "@example.com>")
	for _, body := range []string{plain, rich} {
		require.Contains(t, body, "10,100")
		require.Contains(t, body, "10,000 requests")
		require.Contains(t, body, "1 April 2026, 00:00 UTC")
		require.Contains(t, body, "https://example.com/upgrade")
		require.Contains(t, body, "https://usage.example.com/usage/of-acme")
	}
	require.NoError(t, c.Deliver(t.Context()))
	require.Empty(t, box.take())
}

func TestAMailThatIsRefusedForNowArrivesLater(t *testing.T) {
	w := newWorld(t)
	box, server := newPostbox(t)
	box.fail = 1
	require.NoError(t, usage.SetContact(t.Context(), w.db, "acme", "ops@acme.example", "test", now))
	w.use("acme", "requests", 8_000, now)
	w.fold()
	c := w.courier(server)
	require.ErrorContains(t, c.Deliver(t.Context()), "try again")
	require.Empty(t, box.take())
	_, err := w.db.Exec(t.Context(), "UPDATE weir.warning_sends SET due_at = '-infinity'")
	require.NoError(t, err)
	require.NoError(t, c.Deliver(t.Context()))
	got := box.take()
	require.Len(t, got, 1)
	header, _, _ := parts(t, got[0])
	require.Contains(t, header.Get("Subject"), "API requests")
}

// Names that try to write headers and markup stay text.
func TestNamesInAMailAreInert(t *testing.T) {
	w := newWorld(t)
	box, server := newPostbox(t)
	evil := "a\r\nBcc: all@example.com\r\n<img src=x>"
	require.NoError(t, usage.SetContact(t.Context(), w.db, evil, "ops@acme.example", "test", now))
	w.use(evil, "requests", 10_000, now)
	w.fold()
	require.NoError(t, w.courier(server).Deliver(t.Context()))
	got := box.take()
	require.Len(t, got, 1)
	require.Len(t, got[0].to, 1)
	header, plain, rich := parts(t, got[0])
	require.Empty(t, header.Get("Bcc"))
	require.Contains(t, plain, "aBcc: all@example.com<img src=x> has used")
	require.NotContains(t, rich, "<img")
}
