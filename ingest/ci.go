package ingest

import "strings"

// ciVars is the allow-list: which variables of which CI say who a run is, and
// under which label they are published. Nothing else of the environment is.
var ciVars = []struct{ label, name string }{
	{"cirepo", "GITHUB_REPOSITORY"},
	{"cirepo", "CI_PROJECT_PATH"},
	{"cirepo", "BUILDKITE_PIPELINE_SLUG"},
	{"cirepo", "JOB_NAME"},
	{"ciref", "GITHUB_REF_NAME"},
	{"ciref", "CI_COMMIT_REF_NAME"},
	{"ciref", "BUILDKITE_BRANCH"},
	{"ciref", "BRANCH_NAME"},
	{"cisha", "GITHUB_SHA"},
	{"cisha", "CI_COMMIT_SHA"},
	{"cisha", "BUILDKITE_COMMIT"},
	{"cisha", "GIT_COMMIT"},
	{"ciworkflow", "GITHUB_WORKFLOW"},
	{"ciworkflow", "CI_PIPELINE_NAME"},
	{"ciworkflow", "BUILDKITE_PIPELINE_NAME"},
	{"cijob", "GITHUB_JOB"},
	{"cijob", "CI_JOB_NAME"},
	{"cijob", "BUILDKITE_LABEL"},
	{"cijob", "STAGE_NAME"},
	{"cirun", "GITHUB_RUN_ID"},
	{"cirun", "CI_PIPELINE_ID"},
	{"cirun", "BUILDKITE_BUILD_ID"},
	{"cirun", "BUILD_NUMBER"},
	{"ciattempt", "GITHUB_RUN_ATTEMPT"},
	{"ciattempt", "BUILDKITE_RETRY_COUNT"},
	{"cievent", "GITHUB_EVENT_NAME"},
	{"cievent", "CI_PIPELINE_SOURCE"},
	{"cievent", "BUILDKITE_SOURCE"},
	{"ciactor", "GITHUB_ACTOR"},
	{"ciactor", "GITLAB_USER_LOGIN"},
	{"ciactor", "BUILDKITE_BUILD_CREATOR"},
	{"ciurl", "CI_JOB_URL"},
	{"ciurl", "BUILDKITE_BUILD_URL"},
	{"ciurl", "BUILD_URL"},
}

// TraceParent is the span that the CI has opened around the job, in the form of W3C
// Trace Context, "" where the environment names none that is valid. Buildkite's agent
// has a variable of its own for it.
func TraceParent(env map[string]string) string {
	for _, name := range []string{"TRACEPARENT", "BUILDKITE_TRACING_TRACEPARENT"} {
		if v := env[name]; validTraceParent(v) {
			return v
		}
	}
	return ""
}

// validTraceParent checks the form of version 00, which later versions begin with.
func validTraceParent(v string) bool {
	if len(v) < 55 || len(v) > maxLabel || v[2] != '-' || v[35] != '-' || v[52] != '-' || v[:2] == "ff" {
		return false
	}
	if len(v) > 55 && (v[:2] == "00" || v[55] != '-') {
		return false
	}
	for i, c := range []byte(v[:55]) {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	for _, c := range []byte(v[55:]) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return strings.Trim(v[3:35], "0") != "" && strings.Trim(v[36:52], "0") != ""
}

// maxLabel bounds a label's value in bytes.
const maxLabel = 256

// CILabels picks the CI's identity from the environment by allow-list: GitHub,
// GitLab, Buildkite and Jenkins. It is nil outside of CI.
func CILabels(env map[string]string) map[string]string {
	var provider string
	switch {
	case env["GITHUB_ACTIONS"] == "true":
		provider = "github"
	case env["GITLAB_CI"] == "true":
		provider = "gitlab"
	case env["BUILDKITE"] == "true":
		provider = "buildkite"
	case env["JENKINS_URL"] != "":
		provider = "jenkins"
	default:
		return nil
	}
	labels := map[string]string{"ciprovider": provider}
	for _, v := range ciVars {
		if s := env[v.name]; s != "" && labels[v.label] == "" {
			labels[v.label] = bound(s, maxLabel)
		}
	}
	if provider == "github" && labels["ciurl"] == "" && env["GITHUB_SERVER_URL"] != "" && labels["cirun"] != "" {
		labels["ciurl"] = bound(env["GITHUB_SERVER_URL"]+"/"+labels["cirepo"]+"/actions/runs/"+labels["cirun"], maxLabel)
	}
	return labels
}
