package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"riverqueue.com/riverui"

	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/jobs"
	pages "github.com/weirhq/weir/web/admin"
)

// consoleFlags say who may see the admin's pages beside those who have the token.
type consoleFlags struct {
	UserHeader     string   `name:"admin-user-header" from:"WEIR_ADMIN_USER_HEADER" placeholder:"NAME" help:"Header in which a trusted proxy says who is signed in to the admin, such as X-Forwarded-User ($WEIR_ADMIN_USER_HEADER)."`
	SecondPerson   bool     `name:"admin-second-person" from:"WEIR_ADMIN_SECOND_PERSON" help:"Adjustments, overrides, spending caps and decisions about late usage on the admin's pages wait for a second person ($WEIR_ADMIN_SECOND_PERSON). Needs the header of a trusted proxy."`
	TrustedProxies []string `name:"admin-trusted-proxies" from:"WEIR_ADMIN_TRUSTED_PROXIES" placeholder:"NETWORK" sep:"," help:"Proxies that are trusted: that header is taken from them, and X-Forwarded-For, by which wrong tokens are counted. Networks, addresses, or the word unix, separated by commas ($WEIR_ADMIN_TRUSTED_PROXIES)."`
}

// console is the admin with River's own page in it.
type console struct {
	*pages.Admin
	counts func(context.Context) error // starts what River's page keeps beside the requests: its counts
}

// open makes the console over an office. It starts nothing.
func (f *consoleFlags) open(c *call, o *office, a *adminFlags, l *linkFlags) (*console, error) {
	secret := c.env("WEIR_SECRET")
	if err := settings.FromFile(&secret, l.SecretFile, "WEIR_SECRET"); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(o.pool), &river.Config{Schema: jobs.Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make the jobs' page: %w", err)
	}
	theirs, err := jobPages(client)
	if err != nil {
		return nil, err
	}
	k := &console{counts: theirs.Start}
	k.Admin, err = pages.New(pages.Config{
		DB: o.pool, Biller: o.biller, Clock: o.clock, Logger: c.logger, Token: a.token, UserHeader: f.UserHeader, TrustedProxies: f.TrustedProxies, SecondPerson: f.SecondPerson, Secret: secret,
		Jobs: theirs, Loads: o.loads, JobKinds: func(ctx context.Context, ids []int64) (map[int64]string, error) { return jobKinds(ctx, client, ids) },
	})
	return k, err
}

// start starts what runs beside the requests. It ends with ctx.
func (k *console) start(ctx context.Context) error {
	if err := k.counts(ctx); err != nil {
		return fmt.Errorf("start the jobs' page: %w", err)
	}
	return nil
}

// jobPages are River's own pages of its jobs. Their client works none.
func jobPages(client *river.Client[pgx.Tx]) (*riverui.Handler, error) {
	h, err := riverui.NewHandler(&riverui.HandlerOpts{
		Endpoints: riverui.NewEndpoints[pgx.Tx](client, nil), Logger: slog.New(slog.DiscardHandler), Prefix: pages.JobsPath,
	})
	if err != nil {
		return nil, fmt.Errorf("make the jobs' page: %w", err)
	}
	return h, nil
}

// jobKinds are the kinds of jobs.
func jobKinds(ctx context.Context, client *river.Client[pgx.Tx], ids []int64) (map[int64]string, error) {
	kinds := make(map[int64]string, len(ids))
	for some := range slices.Chunk(ids, mostListed) {
		list, err := client.JobList(ctx, river.NewJobListParams().IDs(some...).First(len(some)))
		if err != nil {
			return nil, fmt.Errorf("read the kinds of jobs: %w", err)
		}
		for _, j := range list.Jobs {
			kinds[j.ID] = j.Kind
		}
	}
	return kinds, nil
}

// mostListed is how many jobs River lists at once.
const mostListed = 1000

// loads are the jobs that are not done, as the admin shows them.
func (o *office) loads(ctx context.Context) ([]pages.Load, error) {
	all, err := jobs.Loads(ctx, o.pool)
	if err != nil {
		return nil, err
	}
	out := make([]pages.Load, 0, len(all))
	for _, l := range all {
		out = append(out, pages.Load{Kind: l.Kind, State: l.State, Jobs: l.Jobs, Age: l.Age})
	}
	return out, nil
}
