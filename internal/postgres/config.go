package postgres

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// configuration returns the lines that are added to postgresql.conf.
func configuration(dir string, o Options) string {
	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(socketPort),
		"unix_socket_directories": dir,
		"unix_socket_permissions": "0700",
		"cluster_name":            "weir",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		// Shared memory in files of the data folder leaves nothing behind in
		// /dev/shm when the processes are killed.
		"dynamic_shared_memory_type": "mmap",
	}
	if o.TCP {
		settings["listen_addresses"] = "127.0.0.1"
	}
	if o.MaxConnections > 0 {
		settings["max_connections"] = strconv.Itoa(o.MaxConnections)
	}
	if o.Fast {
		settings["fsync"] = "off"
		settings["synchronous_commit"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, o.Settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return text.String()
}

// freePort returns a port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
