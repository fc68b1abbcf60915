package pgtest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// stampOf returns the time in seconds that follows prefix in a database's name,
// and whether the name is one that was made here.
func stampOf(name, prefix string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits, id, ok := strings.Cut(rest, "_")
	if !ok || id == "" {
		return 0, false
	}
	stamp, err := strconv.ParseInt(digits, 10, 64)
	return stamp, err == nil && stamp > 0
}

// withDatabase returns the connection string base, a URL or a list of keywords
// and values, for another database of the same server.
func withDatabase(base, name string) (string, error) {
	if !strings.HasPrefix(base, "postgres://") && !strings.HasPrefix(base, "postgresql://") {
		// Of two equal keywords the last counts.
		return base + " dbname=" + name, nil
	}
	u, err := url.Parse(base)
	if err != nil {
		// The error holds the URL, and that a password.
		return "", fmt.Errorf("DATABASE_URL is not a valid URL")
	}
	// Parameters win over the path. The rest stays as it is: in connection
	// URLs a plus sign is no space, so url.Values would change it.
	var kept []string
	for parameter := range strings.SplitSeq(u.RawQuery, "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if parameter != "" && key != "dbname" && key != "database" {
			kept = append(kept, parameter)
		}
	}
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", strings.Join(kept, "&")
	return u.String(), nil
}
