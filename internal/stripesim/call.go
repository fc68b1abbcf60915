package stripesim

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const maxBody = 1 << 20

// call is one API request on its way.
type call struct {
	request *http.Request
	pattern string
	form    *form
	in      *node
	raw     string
	now     time.Time
	version version
	id      string // of the request
	key     string // Idempotency-Key
	apiKey  string
	record  *Call
	claimed *kept
	stream  string // customer and event name under way
}

func (c *call) pathID() string { return c.request.PathValue("id") }

// handler executes a call under the server's lock. It must read all parameters
// and call form.finish before it changes anything.
type handler func(c *call) (object, error)

func (s *Server) open(r *http.Request, pattern string) (*call, *apiError) {
	c := &call{request: r, pattern: pattern, key: r.Header.Get("Idempotency-Key"), apiKey: apiKey(r)}
	s.mu.Lock()
	c.id = s.newID("req", 14)
	c.now = s.now()
	s.mu.Unlock()
	c.version = version(s.cfg.DefaultVersion)
	if given := r.Header.Get("Stripe-Version"); given != "" {
		if !validVersion(given) {
			return c, invalid("Invalid Stripe API version: %s", given).beforeExecution()
		}
		c.version = version(given)
	}
	c.raw = r.URL.RawQuery
	if r.Method != http.MethodGet {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			return c, invalid("Request body too large: at most %d bytes.", maxBody).beforeExecution()
		}
		if err != nil {
			return c, invalid("The request body could not be read: %s", err).beforeExecution()
		}
		c.raw = strings.Trim(c.raw+"&"+string(body), "&")
	}
	f, fault := parseForm(c.raw)
	if fault != nil {
		return c, fault
	}
	c.form, c.in = f, f.root
	if len(c.key) > 255 {
		return c, invalid("Idempotency-Key must be at most 255 characters.").beforeExecution()
	}
	return c, nil
}

// apiKey reads the key from Bearer or Basic authentication.
func apiKey(r *http.Request) string {
	if user, _, ok := r.BasicAuth(); ok {
		return user
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// fingerprint is what must be equal for two requests to share an idempotency
// key: method, path and parameters in any order.
func (c *call) fingerprint() string {
	values, err := url.ParseQuery(c.raw)
	if err != nil {
		return c.request.Method + " " + c.request.URL.Path + "?" + c.raw
	}
	return c.request.Method + " " + c.request.URL.Path + "?" + values.Encode()
}
