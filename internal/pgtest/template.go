package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// A migrateFunc builds the schema of a template in the empty database at url.
type migrateFunc func(ctx context.Context, url string) error

// template returns the database to copy for key, and builds it if need be. One
// process builds, the others wait. A template gets its name when it is
// complete, so a build that was killed is never taken for one.
func (a *admin) template(ctx context.Context, key string, migrate migrateFunc) (string, error) {
	sum := sha256.Sum256([]byte(key))
	id := hex.EncodeToString(sum[:8])
	found, err := a.current(ctx, id)
	if err != nil || found != "" {
		return found, err
	}
	const lock = "SELECT pg_advisory_lock(hashtextextended($1, 0))"
	if _, err := a.conn.Exec(ctx, lock, templatePrefix+id); err != nil {
		return "", fmt.Errorf("wait for the template: %w", err)
	}
	found, err = a.current(ctx, id)
	if err == nil && found == "" {
		found, err = a.build(ctx, id, migrate)
	}
	const unlock = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
	_, unlockErr := a.conn.Exec(ctx, unlock, templatePrefix+id)
	return found, errors.Join(err, unlockErr)
}

// current returns the newest template of an id that is not too old, or "".
func (a *admin) current(ctx context.Context, id string) (string, error) {
	const query = "SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)"
	names, err := a.names(ctx, query, templatePrefix)
	if err != nil {
		return "", err
	}
	newest, since := "", a.now-int64(templateAge.Seconds())
	for _, name := range names {
		made, ok := stampOf(name, templatePrefix)
		if ok && strings.HasSuffix(name, "_"+id) && made > since {
			newest, since = name, made
		}
	}
	return newest, nil
}

func (a *admin) build(ctx context.Context, id string, migrate migrateFunc) (string, error) {
	suffix := fmt.Sprintf("%d_%s", a.now, id)
	building, final := buildingPrefix+suffix, templatePrefix+suffix
	if err := a.drop(ctx, building); err != nil {
		return "", err
	}
	if err := a.copy(ctx, building, "template0"); err != nil {
		return "", err
	}
	url, err := withDatabase(a.url, building)
	if err != nil {
		return "", err
	}
	if err := migrate(ctx, url); err != nil {
		return "", errors.Join(fmt.Errorf("build the template: %w", err), a.drop(ctx, building))
	}
	if err := a.exec(ctx, "ALTER DATABASE "+quoted(building)+" RENAME TO "+quoted(final)); err != nil {
		err = fmt.Errorf("build the template (migrate must close its connections): %w", err)
		return "", errors.Join(err, a.drop(ctx, building))
	}
	return final, nil
}
