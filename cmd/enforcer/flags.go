package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/internal/edge/proxy"
	"github.com/weirhq/weir/internal/settings"
)

// options are the flags. A flag that is not given is read from the environment variable that its tag from names.
type options struct {
	DatabaseURL     string `name:"database-url" from:"DATABASE_URL" placeholder:"URL" help:"The database; with a password in it only by $DATABASE_URL or --database-url-file."`
	DatabaseURLFile string `name:"database-url-file" from:"DATABASE_URL_FILE" placeholder:"FILE" help:"File with the database's URL ($DATABASE_URL_FILE)."`
	ListenURL       string `name:"listen-url" from:"WEIR_LISTEN_URL" placeholder:"URL" help:"Direct database connection for LISTEN, where the other goes through a transaction pooler ($WEIR_LISTEN_URL)."`
	ListenURLFile   string `name:"listen-url-file" from:"WEIR_LISTEN_URL_FILE" placeholder:"FILE" help:"File with it ($WEIR_LISTEN_URL_FILE)."`
	Plans           string `name:"plans" from:"WEIR_PLANS" placeholder:"FILE" help:"Plan file, published where the database has none ($WEIR_PLANS)."`
	JournalDir      string `name:"journal-dir" from:"WEIR_JOURNAL_DIR" placeholder:"DIR" help:"Where counters survive the process ($WEIR_JOURNAL_DIR). Default: $STATE_DIRECTORY, else the user's state folder."`
	Addr            string `name:"addr" from:"WEIR_ADDR" default:"127.0.0.1:8787" help:"host:port, or a Unix socket's path, to serve on ($WEIR_ADDR)."`
	APITokenFile    string `name:"api-token-file" from:"WEIR_API_TOKEN_FILE" placeholder:"FILE" help:"File with the bearer token that callers show ($WEIR_API_TOKEN_FILE, or $WEIR_API_TOKEN itself). Without a token only loopback and Unix sockets are served."`

	Upstream       string    `name:"upstream" from:"WEIR_UPSTREAM" placeholder:"URL" help:"Also serve as a proxy that enforces in front of this API ($WEIR_UPSTREAM)."`
	ProxyAddr      string    `name:"proxy-addr" from:"WEIR_PROXY_ADDR" default:":8080" help:"host:port, or a Unix socket's path, of the proxy ($WEIR_PROXY_ADDR)."`
	Feature        string    `name:"feature" from:"WEIR_FEATURE" placeholder:"NAME" help:"The feature that a request through the proxy spends ($WEIR_FEATURE)."`
	Units          int64     `name:"units" from:"WEIR_UNITS" default:"1" help:"How many units it spends; 0: only the rate is asked ($WEIR_UNITS)."`
	AccountHeader  string    `name:"account-header" from:"WEIR_ACCOUNT_HEADER" default:"X-Weir-Account" help:"The header with the account, believed from trusted peers ($WEIR_ACCOUNT_HEADER)."`
	GiveBack       bool      `name:"give-back" from:"WEIR_GIVE_BACK" help:"The units of answers of 500 and above go back ($WEIR_GIVE_BACK)."`
	TrustedProxies []network `name:"trusted-proxies" from:"WEIR_TRUSTED_PROXIES" placeholder:"NETWORK" help:"Networks of one's own proxies, whose account and X-Forwarded-For are believed, separated by commas ($WEIR_TRUSTED_PROXIES)."`

	FlushInterval time.Duration `name:"flush-interval" from:"WEIR_FLUSH_INTERVAL" default:"1s" help:"How often usage is sent, 50ms to 1m ($WEIR_FLUSH_INTERVAL)."`
	MaxWait       time.Duration `name:"max-wait" from:"WEIR_MAX_WAIT" default:"250ms" help:"How long a call may wait for the database or other nodes, 10ms to 10s ($WEIR_MAX_WAIT)."`
	StopTimeout   time.Duration `name:"stop-timeout" from:"WEIR_STOP_TIMEOUT" default:"20s" help:"How long a stop waits for calls and reservations in flight, and again for the database ($WEIR_STOP_TIMEOUT)."`
	DraftHeaders  bool          `name:"draft-headers" from:"WEIR_DRAFT_HEADERS" help:"Add the IETF draft's RateLimit and RateLimit-Policy fields ($WEIR_DRAFT_HEADERS)."`
	Name          string        `name:"name" from:"WEIR_NODE_NAME" help:"What this node is called for people ($WEIR_NODE_NAME). Default: host and process."`
	LogFormat     string        `name:"log-format" from:"WEIR_LOG_FORMAT" enum:"text,json" default:"text" help:"text or json ($WEIR_LOG_FORMAT)."`
	LogLevel      string        `name:"log-level" from:"WEIR_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error ($WEIR_LOG_LEVEL)."`

	apiToken string
	upstream *url.URL
}

// network is a network, or one address.
type network struct{ netip.Prefix }

// UnmarshalText reads 10.0.0.0/8 or 10.0.0.1.
func (n *network) UnmarshalText(text []byte) (err error) {
	if addr, e := netip.ParseAddr(string(text)); e == nil && addr.Zone() == "" {
		n.Prefix = netip.PrefixFrom(addr, addr.BitLen())
		return nil
	}
	if n.Prefix, err = netip.ParsePrefix(string(text)); err != nil {
		return fmt.Errorf("%.60q is no network: use one such as 10.0.0.0/8, or an address", text)
	}
	return nil
}

// trusted are the networks of --trusted-proxies.
func (o *options) trusted() []netip.Prefix {
	all := make([]netip.Prefix, len(o.TrustedProxies))
	for i, n := range o.TrustedProxies {
		all[i] = n.Prefix
	}
	return all
}

// errHelp ends run after the help was printed.
var errHelp = errors.New("help was printed")

// parse reads flags and environment and says everything that is wrong with them at once.
func parse(args []string, env func(string) string, stdout, stderr io.Writer) (o options, err error) {
	helped := false
	parser, err := kong.New(&o,
		kong.Name("enforcer"),
		kong.Description("Decides over HTTP whether an API's customer may spend one more unit, and counts it. Routes: docs/http.md, or GET /openapi.json."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.Resolvers(settings.Environment(env)),
	)
	if err != nil {
		return o, fmt.Errorf("read flags: %w", err)
	}
	if _, err := parser.Parse(args); err != nil && !helped {
		return o, fmt.Errorf("%w: `enforcer --help` lists the flags", err)
	}
	if helped {
		return o, errHelp
	}
	return o, errors.Join(o.secrets(args, env), o.proxying())
}

// proxying checks what the proxy needs.
func (o *options) proxying() error {
	if o.Upstream == "" {
		return nil
	}
	var wrong []error
	var err error
	if o.upstream, err = proxy.ParseUpstream(o.Upstream); err != nil {
		wrong = append(wrong, err)
	}
	if o.Feature == "" {
		wrong = append(wrong, errors.New("--upstream needs --feature: what does a request spend?"))
	}
	if o.Units < 0 {
		wrong = append(wrong, fmt.Errorf("--units is %d: use 0 or more", o.Units))
	}
	o.AccountHeader = http.CanonicalHeaderKey(o.AccountHeader)
	return errors.Join(wrong...)
}

// secrets reads what must not stand on a command line, where every user of the machine can read it.
func (o *options) secrets(args []string, env func(string) string) error {
	var wrong []error
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	note(settings.NoPassword("--database-url", "DATABASE_URL", o.DatabaseURL, args))
	note(settings.NoPassword("--listen-url", "WEIR_LISTEN_URL", o.ListenURL, args))
	note(settings.FromFile(&o.DatabaseURL, o.DatabaseURLFile, "DATABASE_URL"))
	note(settings.FromFile(&o.ListenURL, o.ListenURLFile, "WEIR_LISTEN_URL"))
	o.apiToken = env("WEIR_API_TOKEN")
	note(settings.FromFile(&o.apiToken, o.APITokenFile, "WEIR_API_TOKEN"))
	if o.DatabaseURL == "" {
		note(errors.New("DATABASE_URL is not set: give it the database's URL, postgres://user:password@host:5432/name"))
	}
	note(settings.Token("WEIR_API_TOKEN", o.apiToken))
	if o.StopTimeout < time.Second || o.StopTimeout > time.Hour {
		note(fmt.Errorf("--stop-timeout is %s: use 1s to 1h", o.StopTimeout))
	}
	return errors.Join(wrong...)
}
