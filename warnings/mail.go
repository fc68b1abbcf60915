package warnings

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	html "html/template"
	"io/fs"
	"net"
	netmail "net/mail"
	"net/url"
	"os"
	"strconv"
	"strings"
	text "text/template"
	"time"
	"unicode"

	"github.com/wneessen/go-mail"

	"github.com/weirhq/weir/internal/wording"
)

// Mail sends warnings by SMTP, as plain text and HTML in one message.
type Mail struct {
	host    string
	options []mail.Option
	from    *netmail.Address
	subject *text.Template
	plain   *text.Template
	html    *html.Template
}

// MailConfig configures Mail.
type MailConfig struct {
	// Server is smtp://user:password@host:587, which insists on STARTTLS, or smtps://…:465. A server on this machine may
	// be spoken to in the clear: smtp://127.0.0.1:25?tls=off.
	Server string
	// From is the sender: Example <billing@example.com>.
	From string
	// Templates is a folder whose subject.txt, warning.txt and warning.html are used in place of the built-in ones, as
	// far as they are there. Their fields are those of Letter.
	Templates string
}

//go:embed templates
var builtIn embed.FS

// NewMail checks the configuration, the templates included, and connects to nothing.
func NewMail(cfg MailConfig) (*Mail, error) {
	m := &Mail{}
	if err := m.server(cfg.Server); err != nil {
		return nil, fmt.Errorf("mail: %w", err)
	}
	var err error
	if m.from, err = netmail.ParseAddress(cfg.From); err != nil {
		return nil, fmt.Errorf("mail: the sender %q is not an address such as Example <billing@example.com>", cfg.From)
	}
	if err := m.templates(cfg.Templates); err != nil {
		return nil, fmt.Errorf("mail: %w", err)
	}
	return m, nil
}

func (m *Mail) server(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Path != "" {
		return errors.New("the server is not an address such as smtp://user:password@mail.example.com:587")
	}
	m.host = u.Hostname()
	m.options = []mail.Option{mail.WithTimeout(sendTime), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithPort(587)}
	switch off := u.Query().Get("tls") == "off"; {
	case u.Scheme == "smtps":
		m.options = append(m.options, mail.WithSSL(), mail.WithPort(465))
	case off && !loopback(m.host):
		return errors.New("tls=off is for a server on this machine only")
	case off:
		m.options = append(m.options, mail.WithTLSPolicy(mail.NoTLS), mail.WithPort(25))
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("the server's port is %q", p)
		}
		m.options = append(m.options, mail.WithPort(n))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		m.options = append(m.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(u.User.Username()), mail.WithPassword(password))
	}
	_, err = mail.NewClient(m.host, m.options...)
	return err
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// templates reads the built-in templates and those that take their place, and tries them all.
func (m *Mail) templates(folder string) error {
	read := func(name string) (string, error) {
		if folder != "" {
			b, err := os.ReadFile(folder + "/" + name)
			if err == nil {
				return string(b), nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		b, err := builtIn.ReadFile("templates/" + name)
		return string(b), err
	}
	var texts [3]string
	for i, name := range []string{"subject.txt", "warning.txt", "warning.html"} {
		var err error
		if texts[i], err = read(name); err != nil {
			return fmt.Errorf("template %s: %w", name, err)
		}
	}
	var errs [3]error
	m.subject, errs[0] = text.New("subject.txt").Parse(texts[0])
	m.plain, errs[1] = text.New("warning.txt").Parse(texts[1])
	m.html, errs[2] = html.New("warning.html").Parse(texts[2])
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	_, _, _, err := m.write(Letter{Account: "acme", Feature: "events", Threshold: 80})
	return err
}

// Letter is what the templates have: text that is ready to be shown, without control characters.
type Letter struct {
	Account      string
	Plan         string
	Feature      string
	Threshold    int    // percent
	Used         string // 812,430
	Allowance    string // 1,000,000
	Included     string // 1,000,000: what the plan's price pays for
	Unit         string // events
	OneName      bool   // unit and feature are named alike, as Rows that are counted in rows
	Capped       bool   // the allowance is the customer's own spending cap
	Full         bool   // all of the allowance is used
	BillsOverage bool   // what goes over is billed; otherwise it is refused
	InOverage    bool   // more than what is included was used
	Cap          string // 100,000 events: the customer's own spending cap, where overage is billed up to it; else empty
	At           string // when Used was that much: 10 March 2026, 12:00 UTC
	ResetsAt     string
	UpgradeURL   string // may be empty
	PageURL      string // may be empty
}

// write makes subject, text and HTML.
func (m *Mail) write(l Letter) (subject, plain, rich string, err error) {
	var s, p, h bytes.Buffer
	err = errors.Join(m.subject.Execute(&s, l), m.plain.Execute(&p, l), m.html.Execute(&h, l))
	return clean(strings.TrimSpace(s.String())), p.String(), h.String(), err
}

func (m *Mail) send(ctx context.Context, n notice) error {
	switch {
	case n.Shadow:
		return errShadow
	case n.Email == "":
		return errNobody
	}
	subject, plain, rich, err := m.write(letter(n))
	if err != nil {
		return fmt.Errorf("write a warning: %w: %w", err, errFinal)
	}
	msg := mail.NewMsg()
	msg.FromMailAddress(m.from)
	if err := msg.To(n.Email); err != nil {
		return fmt.Errorf("address a warning: %w: %w", err, errFinal)
	}
	msg.Subject(subject)
	_, domain, _ := strings.Cut(m.from.Address, "@")
	msg.SetMessageIDWithValue(fmt.Sprintf("warning-%d-%s@%s", n.ID, n.Installation, domain))
	msg.SetDateWithValue(time.Now())
	msg.SetUserAgent("weir")
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(mail.TypeTextPlain, plain)
	msg.AddAlternativeString(mail.TypeTextHTML, rich)
	client, err := mail.NewClient(m.host, m.options...)
	if err != nil {
		return fmt.Errorf("mail a warning: %w", err)
	}
	err = client.DialAndSendWithContext(ctx, msg)
	var refused *mail.SendError
	switch {
	case err == nil || msg.IsDelivered():
		return nil // an error after that is one of saying goodbye
	case errors.As(err, &refused) && !refused.IsTemp() && refused.ErrorCode()/100 == 5:
		return fmt.Errorf("mail a warning: %w: %w", err, errFinal)
	}
	return fmt.Errorf("mail a warning: %w", err)
}

func letter(n notice) Letter {
	l := Letter{
		Account: clean(n.Account), Plan: n.Plan, Feature: n.Feature, Threshold: n.Threshold, Used: wording.Count(n.Used), Allowance: wording.Count(n.Allowance), Unit: "units",
		Included: wording.Count(n.Included), Capped: n.Capped, Full: n.Used >= n.Allowance, BillsOverage: n.OverageOpen, InOverage: n.Used > n.Included,
		At: instant(n.At), ResetsAt: instant(n.Ends), UpgradeURL: n.upgradeURL(), PageURL: n.PageURL,
	}
	if p, ok := n.Catalog.Plan(n.Plan); ok {
		l.Plan = p.DisplayName
	}
	one := "unit"
	if f, ok := n.Catalog.Feature(n.Feature); ok {
		l.Feature = f.DisplayName
		one, l.Unit = wording.Unit(f.Unit, f.Units)
		l.OneName = f.Unit != "" && (strings.EqualFold(l.Feature, one) || strings.EqualFold(l.Feature, l.Unit))
	}
	if n.SpendingCap != nil {
		l.Cap = wording.Of(*n.SpendingCap, one, l.Unit)
	}
	return l
}

func instant(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// clean drops control characters: no text of somebody else's begins a header or a line.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
