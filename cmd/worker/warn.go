package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/warnings"
	"github.com/weirhq/weir/web/link"
)

// warnFlags say how customers are told that they reach their thresholds. Secrets come by environment or file.
type warnFlags struct {
	SMTPFile          string `name:"smtp-url-file" from:"WEIR_SMTP_URL_FILE" placeholder:"FILE" help:"File with the mail server's URL, smtp://user:password@host:587 ($WEIR_SMTP_URL_FILE, or $WEIR_SMTP_URL itself). Without one no mail is sent."`
	MailFrom          string `name:"mail-from" from:"WEIR_MAIL_FROM" placeholder:"ADDRESS" help:"Sender of warnings by mail ($WEIR_MAIL_FROM)."`
	MailTemplates     string `name:"mail-templates" from:"WEIR_MAIL_TEMPLATES" placeholder:"DIR" help:"Folder with subject.txt, warning.txt, warning.html in place of the built-in ones ($WEIR_MAIL_TEMPLATES)."`
	WarnURL           string `name:"warn-url" from:"WEIR_WARN_URL" placeholder:"URL" help:"Where warnings are posted, signed as Standard Webhooks has it ($WEIR_WARN_URL)."`
	WarnURLSecretFile string `name:"warn-secret-file" from:"WEIR_WARN_SECRET_FILE" placeholder:"FILE" help:"File with that webhook's signing secret, whsec_… ($WEIR_WARN_SECRET_FILE, or $WEIR_WARN_SECRET itself)."`

	mail    *warnings.Mail
	webhook *warnings.Webhook
}

func (f *warnFlags) readWarnings(env func(string) string) error {
	smtp, secret := env("WEIR_SMTP_URL"), env("WEIR_WARN_SECRET")
	err := errors.Join(settings.FromFile(&smtp, f.SMTPFile, "WEIR_SMTP_URL"), settings.FromFile(&secret, f.WarnURLSecretFile, "WEIR_WARN_SECRET"))
	if err == nil && smtp != "" {
		f.mail, err = warnings.NewMail(warnings.MailConfig{Server: smtp, From: f.MailFrom, Templates: f.MailTemplates})
		if err != nil {
			err = fmt.Errorf("WEIR_SMTP_URL, WEIR_MAIL_FROM: %w", err)
		}
	}
	if err == nil && f.WarnURL != "" {
		f.webhook, err = warnings.NewWebhook(f.WarnURL, secret)
		if err != nil {
			err = fmt.Errorf("WEIR_WARN_URL, WEIR_WARN_SECRET: %w", err)
		}
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// mailLinkLife is how long the link to the usage page in a mail is worth something.
const mailLinkLife = 7 * 24 * time.Hour

// courier delivers warnings; the mail's link is signed where links are.
func (f *warnFlags) courier(c *call, d *desk, links *link.Signer, base string) (*warnings.Courier, error) {
	cfg := warnings.Config{DB: d.pool, Clock: d.clock, Logger: c.logger, Mail: f.mail, Webhook: f.webhook}
	if links != nil && base != "" {
		cfg.PageURL = func(account string) string {
			u, err := links.URL(base, account, time.Now().Add(mailLinkLife))
			if err != nil {
				c.logger.Warn("a warning has no link to the usage page", "account", account, "error", err)
			}
			return u
		}
	}
	return warnings.New(cfg)
}
