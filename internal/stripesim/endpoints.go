package stripesim

import (
	"net/url"
	"time"
)

// endpoint is a webhook endpoint, or an event destination for thin events.
type endpoint struct {
	record
	url         string
	secrets     []signingSecret
	version     version
	events      []string
	thin        bool
	enabled     bool
	description string
	metadata    map[string]string
}

type signingSecret struct {
	text  string
	until time.Time // zero: for ever
}

func (s *Server) addEndpoint(w Webhook, at time.Time) *endpoint {
	prefix := "we"
	if w.Thin {
		prefix = "ed"
	}
	e := &endpoint{
		record: s.newRecord(prefix, 24, at), url: w.URL, secrets: []signingSecret{{text: w.Secret}},
		version: version(w.APIVersion), events: w.Events, thin: w.Thin, enabled: true,
	}
	if w.APIVersion == "" {
		e.version = version(s.cfg.DefaultVersion)
	}
	if len(e.events) == 0 {
		e.events = []string{"*"}
	}
	s.endpoints.add(e)
	return e
}

// AddWebhook adds an endpoint or a thin event destination and returns its id.
func (s *Server) AddWebhook(w Webhook) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addEndpoint(w, s.now()).id
}

// RollSecret gives an endpoint a new secret; for the overlap of business time,
// at most 24 hours, deliveries are signed with the old one too. It reports
// whether the endpoint exists.
func (s *Server) RollSecret(endpointID, secret string, overlap time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.endpoints.get(endpointID)
	if !ok {
		return false
	}
	until := s.now().Add(min(overlap, 24*time.Hour))
	old := e.secrets[:0:0]
	for _, each := range e.secrets {
		if each.until.IsZero() || each.until.After(until) {
			each.until = until
		}
		old = append(old, each)
	}
	e.secrets = append([]signingSecret{{text: secret}}, old...)
	return true
}

func (e *endpoint) wants(kind string) bool { return e.enabled && anyTypeMatches(e.events, kind) }

func (s *Server) renderEndpoint(e *endpoint) object {
	status := "enabled"
	if !e.enabled {
		status = "disabled"
	}
	return object{
		"id": e.id, "object": "webhook_endpoint", "api_version": nullable(string(e.version)), "application": nil,
		"created": e.created.Unix(), "description": nullable(e.description), "enabled_events": e.events,
		"livemode": s.live(), "metadata": pairs(e.metadata), "status": status, "url": e.url,
	}
}

func (s *Server) createEndpoint(c *call) (object, error) {
	w := Webhook{URL: c.in.required("url"), Events: c.in.texts("enabled_events"), APIVersion: c.in.str("api_version")}
	description, metadata := c.in.str("description"), c.in.metadata(nil)
	c.in.boolean("connect")
	if len(w.Events) == 0 {
		c.form.fail(invalid("Missing required param: enabled_events.").withCode("parameter_missing").withParam("enabled_events"))
	}
	c.checkEndpointURL(w.URL)
	if w.APIVersion != "" && !validVersion(w.APIVersion) {
		c.form.fail(invalid("Invalid api_version: %s", w.APIVersion).withParam("api_version"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	w.Secret = s.newID("whsec", 32)
	e := s.addEndpoint(w, c.now)
	e.description, e.metadata = description, metadata
	out := s.renderEndpoint(e)
	out["secret"] = w.Secret // shown only here
	return out, nil
}

func (c *call) checkEndpointURL(text string) {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		c.form.fail(invalid("Invalid URL: An explicit scheme (such as https) must be provided.").withCode("url_invalid").withParam("url"))
	}
}

func (s *Server) snapshotEndpoint(id string) (*endpoint, error) {
	e, ok := s.endpoints.get(id)
	if !ok || e.thin {
		return nil, missing("webhook endpoint", id)
	}
	return e, nil
}

func (s *Server) getEndpoint(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	e, err := s.snapshotEndpoint(c.pathID())
	if err != nil {
		return nil, err
	}
	return s.renderEndpoint(e), nil
}

func (s *Server) updateEndpoint(c *call) (object, error) {
	e, err := s.snapshotEndpoint(c.pathID())
	if err != nil {
		return nil, err
	}
	events, metadata := c.in.texts("enabled_events"), c.in.metadata(e.metadata)
	disabled, target := c.in.boolean("disabled"), e.url
	description, _ := c.in.value("description")
	if c.in.has("url") {
		target = c.in.str("url")
		c.checkEndpointURL(target)
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	e.metadata, e.url = metadata, target
	if len(events) > 0 {
		e.events = events
	}
	if c.in.has("description") {
		e.description = description
	}
	if disabled != nil {
		e.enabled = !*disabled
	}
	return s.renderEndpoint(e), nil
}

func (s *Server) deleteEndpoint(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	e, err := s.snapshotEndpoint(c.pathID())
	if err != nil {
		return nil, err
	}
	e.enabled = false
	s.endpoints.remove(e.id)
	return object{"id": e.id, "object": "webhook_endpoint", "deleted": true}, nil
}

func (s *Server) listEndpoints(c *call) (object, error) {
	l := c.in.listing()
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	page, more, err := newestFirst(l, s.endpoints.rows, s.endpoints.get, func(e *endpoint) bool { return !e.thin })
	if err != nil {
		return nil, err
	}
	return list("/v1/webhook_endpoints", page, more, s.renderEndpoint), nil
}
