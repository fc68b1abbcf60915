package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The ways in which somebody changes something.
const (
	WayAdmin = "admin" // the admin pages
	WayCLI   = "cli"   // the worker's commands
	WayAPI   = "api"   // the host application
	WayPage  = "page"  // a customer, on the usage page
)

// Outcomes of an action in the audit log. The empty one means: begun, and how it ended is not known (yet).
const (
	ResultDone     = "done"
	ResultRefused  = "refused"  // the rules do not allow it; nothing was changed
	ResultFailed   = "failed"   // it could not be done; the message says how far it came
	ResultWaiting  = "waiting"  // a request that another person decides
	ResultDeclined = "declined" // another person's request, which this row declines
)

// Limits of what the audit log takes.
const (
	MaxActorBytes   = 255
	MaxReasonBytes  = 1000
	MaxMessageBytes = 1000
	MaxAuditRows    = 500 // in one reading
)

// ErrRepeated says that a form was sent before: what it asked for is not done a second time.
var ErrRepeated = errors.New("this form was sent before: it acts once")

// By says who changes something, in which way, and why.
type By struct {
	Actor  string // 1 to MaxActorBytes of UTF-8
	Way    string // one of the ways above
	Reason string // 1 to MaxReasonBytes of UTF-8
	Form   string // the one-time id of the form, 16 to 64 bytes; empty where there is none
}

// Check says what is wrong with it, for the one who gave it.
func (by By) Check() error {
	switch {
	case !words(by.Actor, MaxActorBytes):
		return fmt.Errorf("who does this is not said: give a name of 1 to %d bytes", MaxActorBytes)
	case !words(by.Reason, MaxReasonBytes):
		return fmt.Errorf("the reason is empty, or over %d bytes: the audit log keeps why this was done", MaxReasonBytes)
	case by.Form != "" && (len(by.Form) < 16 || len(by.Form) > 64):
		return errors.New("the form's id has 16 to 64 bytes")
	}
	return nil
}

// words reports whether there is text in s, and the database takes it.
func words(s string, most int) bool {
	return strings.TrimSpace(s) != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// Entry is a row of the audit log.
type Entry struct {
	ID        int64
	At        time.Time // business time
	Wall      time.Time
	Actor     string
	Way       string
	Action    string
	Subject   string // an account, a node, a finding
	Arguments json.RawMessage
	Reason    string
	Decides   int64  // the request that this row decides; 0: none
	Account   string // empty: of no account
	Result    string // empty: begun, how it ended is not known
	Message   string
}

// BeginAudit writes the row of an action that is about to be done. Within the transaction of what it does, the two are
// there together or not at all. A form that was sent before is ErrRepeated.
func BeginAudit(ctx context.Context, db DB, by By, action, subject string, arguments any, at time.Time) (int64, error) {
	return beginAudit(ctx, db, by, action, subject, arguments, nil, at)
}

// DecideAudit is BeginAudit for the decision about another person's request. A request that is decided is ErrRepeated.
func DecideAudit(ctx context.Context, db DB, by By, request *Entry, at time.Time) (int64, error) {
	return beginAudit(ctx, db, by, request.Action, request.Subject, request.Arguments, &request.ID, at)
}

func beginAudit(ctx context.Context, db DB, by By, action, subject string, arguments any, decides *int64, at time.Time) (int64, error) {
	var form *string
	if by.Form != "" {
		form = &by.Form
	}
	body, err := json.Marshal(arguments)
	if err != nil {
		return 0, fmt.Errorf("write the audit log: %w", err)
	}
	var id int64
	err = db.QueryRow(ctx, `INSERT INTO weir.audit (at, actor, way, action, subject, arguments, reason, form, decides)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id`,
		at, strings.TrimSpace(by.Actor), by.Way, action, strings.ToValidUTF8(subject, "?"), body, strings.TrimSpace(by.Reason), form, decides).Scan(&id)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" { // unique_violation: of the form, or of the request
		return 0, fmt.Errorf("write the audit log: %w", ErrRepeated)
	}
	return id, wrap("write the audit log", err)
}

// EndAudit writes how an action ended, once. account is the account's name, empty for none.
func EndAudit(ctx context.Context, db DB, id int64, result, message, account string, at time.Time) error {
	if len(message) > MaxMessageBytes {
		message = strings.ToValidUTF8(message[:MaxMessageBytes], "")
	}
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", "?")
	tag, err := db.Exec(ctx, `UPDATE weir.audit SET result = $2, message = nullif($3, ''), ended_at = $5,
			account_id = (SELECT a.id FROM weir.accounts a WHERE a.account = $4) WHERE id = $1 AND result IS NULL`, id, result, message, account, at)
	if err == nil && tag.RowsAffected() == 0 {
		err = pgx.ErrNoRows
	}
	return wrap(fmt.Sprintf("write the outcome of audit row %d", id), err)
}

const auditColumns = `w.id, w.at, w.wall, w.actor, w.way, w.action, coalesce(nullif(w.subject, ''), a.account, ''), w.arguments, w.reason, coalesce(w.decides, 0), coalesce(a.account, ''),
	coalesce(w.result, ''), coalesce(w.message, '') FROM weir.audit w LEFT JOIN weir.accounts a ON a.id = w.account_id`

// ReadAudit reads one row; ErrNotFound when there is none. Within a transaction the row is locked until it ends, so
// that two decisions about it wait for each other.
func ReadAudit(ctx context.Context, db DB, id int64) (Entry, error) {
	rows, err := db.Query(ctx, "SELECT "+auditColumns+" WHERE w.id = $1 FOR NO KEY UPDATE OF w", id)
	if err != nil {
		return Entry{}, wrap("read the audit log", err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Entry])
	return e, wrap("read the audit log", err)
}

// AuditFilter says which rows are read, the newest first. Empty members admit all.
type AuditFilter struct {
	Actor  string
	Action string
	Before int64 // rows with a smaller id; 0: from the newest
	Most   int   // 1 to MaxAuditRows
}

// AuditLog reads rows of the audit log, the newest first.
func AuditLog(ctx context.Context, db DB, f AuditFilter) ([]Entry, error) {
	rows, err := db.Query(ctx, "SELECT "+auditColumns+` WHERE ($1 = 0 OR w.id < $1) AND ($2 = '' OR w.actor = $2) AND ($3 = '' OR w.action = $3)
		ORDER BY w.id DESC LIMIT $4`, f.Before, f.Actor, f.Action, max(1, min(f.Most, MaxAuditRows)))
	if err != nil {
		return nil, wrap("read the audit log", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	return all, wrap("read the audit log", err)
}

// Requests lists what waits for another person's decision and was asked for after an instant, the oldest first, at most
// MaxAuditRows.
func Requests(ctx context.Context, db DB, after time.Time) ([]Entry, error) {
	rows, err := db.Query(ctx, "SELECT "+auditColumns+` WHERE w.result = 'waiting' AND w.at > $1
		AND NOT EXISTS (SELECT FROM weir.audit d WHERE d.decides = w.id) ORDER BY w.at, w.id LIMIT $2`, after, MaxAuditRows)
	if err != nil {
		return nil, wrap("read the requests", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	return all, wrap("read the requests", err)
}
