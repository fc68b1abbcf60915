package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/embed"
	"github.com/weirhq/weir/web/link"
)

// linkFlags say how links to usage pages are signed and where they lead.
type linkFlags struct {
	SecretFile string `name:"secret-file" from:"WEIR_SECRET_FILE" placeholder:"FILE" help:"File with the secret that signs links to usage pages, or several separated by commas, the first of which signs ($WEIR_SECRET_FILE, or $WEIR_SECRET itself)."`
	PublicURL  string `name:"public-url" from:"WEIR_PUBLIC_URL" placeholder:"URL" help:"Where customers reach this worker, such as https://usage.example.com ($WEIR_PUBLIC_URL)."`

	links *link.Signer
}

// readLinks makes the signer, or leaves it nil without a secret.
func (f *linkFlags) readLinks(env func(string) string) error {
	secret := env("WEIR_SECRET")
	err := settings.FromFile(&secret, f.SecretFile, "WEIR_SECRET")
	if err == nil && secret != "" {
		f.links, err = link.NewSigner(link.Secrets(secret)...)
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// pageFlags are what the pages need beside links.
type pageFlags struct {
	linkFlags
	FrameAncestors []string `name:"frame-ancestors" from:"WEIR_FRAME_ANCESTORS" placeholder:"ORIGIN" sep:"," help:"Origins whose pages may embed usage pages, separated by commas ($WEIR_FRAME_ANCESTORS). Default: none."`
	EmbedOrigins   []string `name:"embed-origins" from:"WEIR_EMBED_ORIGINS" placeholder:"ORIGIN" sep:"," help:"Origins whose pages may read usage for <weir-meter>, separated by commas ($WEIR_EMBED_ORIGINS). Default: none."`

	elements *embed.Elements
}

// readPages reads links, and makes the elements.
func (f *pageFlags) readPages(env func(string) string) (err error) {
	wrong := f.readLinks(env)
	f.elements, err = embed.New(f.EmbedOrigins)
	return errors.Join(wrong, err)
}

type linkCmd struct {
	linkFlags
	Account string        `arg:"" help:"The account's id."`
	For     time.Duration `name:"for" default:"24h" help:"How long the link is worth something, up to 366 days."`
}

// Run prints a link to an account's usage page. It needs no database.
func (l *linkCmd) Run(c *call) error {
	if err := l.readLinks(c.env); err != nil {
		return err
	}
	switch {
	case l.links == nil:
		return usageError{errors.New("WEIR_SECRET is not set: give the one that `worker serve` has; make one with `openssl rand -hex 32`")}
	case l.PublicURL == "":
		return usageError{errors.New("WEIR_PUBLIC_URL is not set: give the address under which customers reach `worker serve`, such as https://usage.example.com, or http://127.0.0.1:8788 on this machine")}
	case l.For < time.Second || l.For > link.MaxLifetime:
		return usageError{fmt.Errorf("--for is %s: use 1s to %s", l.For, link.MaxLifetime)}
	}
	if err := usage.CheckAccount(l.Account); err != nil {
		return usageError{err}
	}
	until := time.Now().Add(l.For).Truncate(time.Second).UTC()
	url, err := l.links.URL(l.PublicURL, l.Account, until)
	if err != nil {
		return usageError{err}
	}
	if c.JSON {
		return json.NewEncoder(c.out).Encode(map[string]any{"url": url, "expires_at": until})
	}
	_, err = fmt.Fprintln(c.out, url)
	return err
}
