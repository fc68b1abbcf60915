package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Away reports whether an error passes by itself once the database is back: no connection, no answer, or a server that
// starts, stops or is full. What the server says about credentials, names or content does not.
func Away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", "40", "53", "57", "58": // connection, rollback, resources, operator, system (PostgreSQL, appendix A)
			return true
		}
		return false
	}
	// Not net.Error: every error number of the system is one, a full disk's and a folder's without rights included.
	var network *net.OpError
	var name *net.DNSError
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.As(err, &network) || errors.As(err, &name) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// mended is an error that says what to do.
type mended struct{ error }

func (m mended) Unwrap() error { return m.error }

// Mend adds to an error of the database's what to do about it, where the error does not say it.
func Mend(err error) error {
	if done := new(mended); errors.As(err, done) {
		return err
	}
	if what := remedy(err); what != "" {
		return mended{fmt.Errorf("%w: %s", err, what)}
	}
	return err
}

func remedy(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "3D000":
		return "create the database, or mend DATABASE_URL"
	case errors.As(err, &pg) && pg.Code[:min(2, len(pg.Code))] == "28":
		return "mend the user or the password in DATABASE_URL"
	case errors.As(err, &pg) && pg.Code == "42501":
		return "grant it to the user in DATABASE_URL, or use the one that ran `worker migrate`"
	case Away(err):
		return "see that it runs and that this machine reaches it, or mend DATABASE_URL"
	}
	return ""
}
