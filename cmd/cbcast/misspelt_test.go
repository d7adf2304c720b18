package main

import "testing"

func TestMeant(t *testing.T) {
	for name, want := range map[string]string{
		"CBCAST_NOTIFY_RULE":        "CBCAST_NOTIFY_RULES",
		"CBCAST_NOTIFY_RULES_FILE":  "CBCAST_NOTIFY_RULES",
		"CBCAST_NATS_URLS":          "CBCAST_NATS_URL",
		"CBCAST_NAST_URL":           "CBCAST_NATS_URL",
		"CBCAST_RELAY_TOKEN_FILE":   "CBCAST_RELAY_TOKENS_FILE",
		"CBCAST_S3_ENDPOINT":        "CBCAST_ARCHIVE_S3_ENDPOINT",
		"CBCAST_ARCHIVE_SIGNINGKEY": "CBCAST_ARCHIVE_SIGNING_KEY",
		"CBCAST_UP_WIT":             "CBCAST_UP_WITH",
		// Names of scripts and recipes, and what could be several.
		"CBCAST_VERSION":        "",
		"CBCAST_KILL":           "",
		"CBCAST_CHAOS":          "",
		"CBCAST_COMPOSE":        "",
		"CBCAST_NATS_NKEY_SEED": "",
		"CBCAST_ADDR":           "",
		"CBCAST_TOKEN":          "",
		"CBCAST_":               "",
	} {
		if got := meant(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, k := range knownVars() {
		if no := unknownVars([]string{k}); no != nil {
			t.Errorf("%s is not known", k)
		}
	}
}
