package dialect

import (
	"strings"
	"sync"

	"github.com/cbcast/cbcast/internal/event"
)

// The methods of Codex CLI 0.153.4, as its own schema lists them (codex app-server
// generate-json-schema --experimental). Each has a ce-type; any other is "other".
const (
	codexNotes = "account/login/completed account/rateLimits/updated account/updated app/list/updated autoApprovalReview/strictReviewRequired " +
		"command/exec/outputDelta configWarning deprecationNotice error externalAgentConfig/import/completed " +
		"externalAgentConfig/import/progress fs/changed fuzzyFileSearch/sessionCompleted fuzzyFileSearch/sessionUpdated guardianWarning " +
		"hook/completed hook/started item/agentMessage/delta item/autoApprovalReview/completed item/autoApprovalReview/started " +
		"item/commandExecution/outputDelta item/commandExecution/terminalInteraction item/completed item/fileChange/outputDelta " +
		"item/fileChange/patchUpdated item/mcpToolCall/progress item/plan/delta item/reasoning/summaryPartAdded " +
		"item/reasoning/summaryTextDelta item/reasoning/textDelta item/started mcpServer/event/stream/notification " +
		"mcpServer/oauthLogin/completed mcpServer/startupStatus/updated model/rerouted model/safetyBuffering/updated model/verification " +
		"modelProvider/authRecoveryCompleted modelProvider/authRecoveryStarted process/exited process/outputDelta project/changed " +
		"remoteControl/status/changed serverRequest/resolved skills/changed thread/archived thread/closed thread/compacted thread/deleted " +
		"thread/environment/connected thread/environment/disconnected thread/goal/cleared thread/goal/updated thread/name/updated " +
		"thread/project/updated thread/queue/changed thread/realtime/closed thread/realtime/error thread/realtime/item/completed " +
		"thread/realtime/item/started thread/realtime/item/transcript/delta thread/realtime/itemAdded thread/realtime/outputAudio/delta " +
		"thread/realtime/sdp thread/realtime/started thread/realtime/transcript/delta thread/realtime/transcript/done thread/reverted " +
		"thread/settings/updated thread/started thread/status/changed thread/tokenUsage/updated thread/unarchived turn/completed " +
		"turn/diff/updated turn/moderationMetadata turn/plan/updated turn/started warning windows/worldWritableWarning " +
		"windowsSandbox/setupCompleted " // of the server
	codexAsked = "account/chatgptAuthTokens/refresh applyPatchApproval attestation/generate currentTime/read execCommandApproval " +
		"item/commandExecution/requestApproval item/fileChange/requestApproval item/permissions/requestApproval item/tool/call " +
		"item/tool/requestUserInput mcpServer/elicitation/request " // of the server, with an id
	codexHost = "account/bedrock/discover account/bedrock/setup account/login/cancel account/login/start account/logout " +
		"account/rateLimitResetCredit/consume account/rateLimits/read account/read account/sendAddCreditsNudgeEmail account/usage/read " +
		"account/workspaceMessages/read app/installed app/list app/read collaborationMode/list command/exec command/exec/resize " +
		"command/exec/terminate command/exec/write config/batchWrite config/mcpServer/reload config/read config/value/write " +
		"configRequirements/read environment/add environment/info environment/status experimentalFeature/enablement/set " +
		"experimentalFeature/list externalAgentConfig/detect externalAgentConfig/import externalAgentConfig/import/readHistories " +
		"externalAgentConfig/import/recordHistory feedback/upload fs/copy fs/createDirectory fs/getMetadata fs/readDirectory fs/readFile " +
		"fs/remove fs/unwatch fs/watch fs/writeFile fuzzyFileSearch fuzzyFileSearch/sessionStart fuzzyFileSearch/sessionStop " +
		"fuzzyFileSearch/sessionUpdate hooks/list initialize marketplace/add marketplace/remove marketplace/upgrade " +
		"mcpServer/event/stream/start mcpServer/event/stream/stop mcpServer/oauth/login mcpServer/resource/read mcpServer/tool/call " +
		"mcpServerStatus/list memory/reset mock/experimentalMethod model/list modelProvider/capabilities/read permissionProfile/list " +
		"plugin/install plugin/installed plugin/list plugin/read plugin/reconcile plugin/search plugin/share/checkout plugin/share/delete " +
		"plugin/share/list plugin/share/save plugin/share/updateTargets plugin/skill/read plugin/uninstall process/kill process/resizePty " +
		"process/spawn process/writeStdin project/create project/delete project/import project/list project/move project/read " +
		"project/update remoteControl/client/list remoteControl/client/revoke remoteControl/disable remoteControl/enable " +
		"remoteControl/pairing/start remoteControl/pairing/status remoteControl/status/read review/start server/diagnostics " +
		"skills/config/write skills/extraRoots/set skills/list thread/approveGuardianDeniedAction thread/archive " +
		"thread/backgroundTerminals/clean thread/backgroundTerminals/list thread/backgroundTerminals/terminate thread/compact/start " +
		"thread/decrement_elicitation thread/delete thread/fork thread/goal/clear thread/goal/get thread/goal/set " +
		"thread/increment_elicitation thread/inject_items thread/items/list thread/list thread/loaded/list thread/memoryMode/set " +
		"thread/metadata/update thread/name/set thread/queue/add thread/queue/delete thread/queue/list thread/queue/reorder " +
		"thread/queue/start thread/queue/update thread/read thread/realtime/appendAudio thread/realtime/appendSpeech " +
		"thread/realtime/appendText thread/realtime/listVoices thread/realtime/start thread/realtime/stop thread/resume thread/revert " +
		"thread/rollback thread/search thread/searchOccurrences thread/section/move thread/settings/update thread/shellCommand thread/start " +
		"thread/timeline/list thread/turns/list thread/unarchive thread/unsubscribe threadSection/create threadSection/delete " +
		"threadSection/list threadSection/update turn/interrupt turn/settings/update turn/start turn/steer windowsSandbox/readiness " +
		"windowsSandbox/setupStart " +
		"initialized" // of the host
)

// Methods that decide something here.
const (
	MethodInitialize    = "initialize"
	MethodThreadStart   = "thread/start"
	MethodThreadResume  = "thread/resume"
	MethodThreadFork    = "thread/fork"
	MethodTurnStart     = "turn/start"
	MethodTurnSteer     = "turn/steer"
	MethodTurnInterrupt = "turn/interrupt"
	MethodTerminate     = "thread/backgroundTerminals/terminate"

	MethodCommandApproval     = "item/commandExecution/requestApproval"
	MethodFileApproval        = "item/fileChange/requestApproval"
	MethodPermissionsApproval = "item/permissions/requestApproval"
	MethodUserInput           = "item/tool/requestUserInput"
	MethodElicitation         = "mcpServer/elicitation/request"

	MethodResolved      = "serverRequest/resolved"
	MethodThreadStarted = "thread/started"
	MethodThreadStatus  = "thread/status/changed"
	MethodTurnStarted   = "turn/started"
	MethodTurnCompleted = "turn/completed"
	MethodPlan          = "turn/plan/updated"
	MethodItemStarted   = "item/started"
	MethodItemCompleted = "item/completed"
	MethodTokens        = "thread/tokenUsage/updated"
	MethodReview        = "item/autoApprovalReview/completed"
	MethodError         = "error"
)

// IsAskMethod reports whether a request of Codex with this method waits for a
// person. item/tool/call, currentTime/read and the like are for the host itself.
func IsAskMethod(method string) bool {
	switch method {
	case MethodCommandApproval, MethodFileApproval, MethodPermissionsApproval, MethodUserInput, MethodElicitation:
		return true
	}
	return false
}

// codexTypes holds the ce-type of each known method: requests of both sides are
// "request.<method>". It is made when first asked for.
var codexTypes = sync.OnceValue(func() map[string]string {
	name := func(m string) string { return strings.ReplaceAll(m, "/", ".") }
	types := make(map[string]string, 256)
	for m := range strings.FieldsSeq(codexNotes) {
		types[m] = codexPrefix + name(m)
	}
	for m := range strings.FieldsSeq(codexAsked + codexHost) {
		types[m] = codexPrefix + "request." + name(m)
	}
	return types
})

const (
	codexPrefix  = event.TypePrefix + string(Codex) + "."
	codexResult  = codexPrefix + "response.success"
	codexError   = codexPrefix + "response.error"
	codexRequest = codexPrefix + "request.other"
)

// codexTypeOf is the ce-type of a frame of Codex.
func codexTypeOf(m *RPC) string {
	typ := codexTypes()[m.Method]
	switch {
	case m.Kind == RPCResponse && m.Error != nil:
		return codexError
	case m.Kind == RPCResponse:
		return codexResult
	case typ != "":
		return typ
	case m.Kind == RPCRequest:
		return codexRequest
	}
	return rawTypes[Codex].other
}

// codexTypeList lists every ce-type of Codex.
func codexTypeList() []string {
	list := []string{rawTypes[Codex].out, rawTypes[Codex].err, rawTypes[Codex].other, codexResult, codexError, codexRequest}
	for _, typ := range codexTypes() {
		list = append(list, typ)
	}
	return list
}
