"""Run an LLM agent in a loop until the work is done, stop for the right reason, and know which.

The public names are loaded when they are first used, so that ``import untildone`` costs next to
nothing. A test holds the three lists below together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from untildone.lazy import lazy_names

if TYPE_CHECKING:
    from untildone.agent import (
        CODING,
        RESEARCH,
        SIMPLE,
        Agent,
        AgentHooks,
        FallbackChain,
        LoopConfig,
        RetryPolicy,
    )
    from untildone.app.definitions import (
        AgentDefinition,
        DefinitionError,
        HarnessSettings,
        LoopCriterion,
        LoopSettings,
        ModelBinding,
        Problem,
        build_agent,
        definition_schema,
        dump_definition,
        load_definition,
        parse_definition,
    )
    from untildone.content import image, pdf
    from untildone.criteria import (
        AiJudge,
        BackgroundTaskCompletion,
        Command,
        CompletionMarker,
        CriterionRegistry,
        JsonSchema,
        MinScore,
        Regex,
        TodoCompletion,
        all_of,
        any_of,
        not_,
    )
    from untildone.domain.episodes import Episode
    from untildone.domain.errors import (
        AuthenticationError,
        BadReplyError,
        BadRequestError,
        ConfigError,
        ConnectionFailedError,
        CriterionFailedError,
        GradingError,
        LoopConfigWarning,
        LoopConvergedError,
        LoopUnsatisfiedError,
        MaxTurnsError,
        MCPError,
        MemoryProviderError,
        ModelError,
        ModelTimeoutError,
        OutputParseError,
        RateLimitError,
        ResumeError,
        RunError,
        ServerError,
        SkillError,
        ToolError,
        UntildoneError,
        partial_result,
    )
    from untildone.domain.exits import ExitReason
    from untildone.domain.grading import (
        CriterionContext,
        CriterionVerdict,
        LoopOutcome,
        VerifierFeedback,
    )
    from untildone.domain.log_codec import event_from_dict, event_to_dict
    from untildone.domain.messages import Message, ToolCall
    from untildone.domain.requests import ModelReply, ModelRequest, TextDelta, ThinkingDelta
    from untildone.domain.results import AgentResult
    from untildone.domain.stream import EventType, StreamEvent, StreamPolicy
    from untildone.domain.usage import Usage
    from untildone.memory import (
        EpisodicMemory,
        FileMemoryProvider,
        InMemoryProvider,
        PlaybookEntry,
        ProceduralMemory,
        RedisMemoryProvider,
        SQLMemoryProvider,
    )
    from untildone.models.anthropic_messages import AnthropicModel
    from untildone.models.endpoint import ModelTimeouts
    from untildone.models.openai_chat import OpenAIChatModel
    from untildone.models.prompted_tools import PromptedToolsModel
    from untildone.policy.stuck import StuckDetector, StuckPolicy, StuckSignal, is_stuck
    from untildone.run import (
        AgentStream,
        aclose,
        filter_stream,
        resume_agent,
        run_agent,
        run_agent_loop,
        run_agent_sync,
        search_loop,
        stream_agent,
    )
    from untildone.skills import (
        DistilledSkill,
        FunctionSkill,
        Skill,
        SkillLibrary,
        SkillRegistry,
        skill,
    )
    from untildone.tools.background import BackgroundTasks
    from untildone.tools.decorator import tool
    from untildone.tools.mcp import HTTPMCP, SSEMCP, StdioMCP
    from untildone.tools.todo import TodoList
    from untildone.tools.workspace import Workspace
    from untildone.verify import (
        ApexCitation,
        ApexConfig,
        APEXSynthesizer,
        Verifier,
        VerifierConfig,
    )

__version__ = "0.1.0"

_WHERE = {
    "content": "image pdf",
    "app.definitions": (
        "AgentDefinition DefinitionError HarnessSettings LoopCriterion LoopSettings "
        "ModelBinding Problem build_agent definition_schema dump_definition load_definition "
        "parse_definition"
    ),
    "tools.todo": "TodoList",
    "tools.background": "BackgroundTasks",
    "skills": "DistilledSkill FunctionSkill Skill SkillLibrary SkillRegistry skill",
    "tools.mcp": "HTTPMCP SSEMCP StdioMCP",
    "tools.workspace": "Workspace",
    "models.prompted_tools": "PromptedToolsModel",
    "criteria": (
        "AiJudge BackgroundTaskCompletion Command CompletionMarker CriterionRegistry JsonSchema "
        "MinScore Regex TodoCompletion all_of any_of not_"
    ),
    "memory": (
        "EpisodicMemory FileMemoryProvider InMemoryProvider PlaybookEntry ProceduralMemory "
        "RedisMemoryProvider SQLMemoryProvider"
    ),
    "domain.episodes": "Episode",
    "agent": "CODING RESEARCH SIMPLE Agent AgentHooks FallbackChain LoopConfig RetryPolicy",
    "domain.errors": (
        "AuthenticationError BadReplyError BadRequestError ConfigError ConnectionFailedError "
        "CriterionFailedError GradingError LoopConfigWarning LoopConvergedError "
        "LoopUnsatisfiedError MCPError MaxTurnsError MemoryProviderError ModelError "
        "ModelTimeoutError OutputParseError RateLimitError ResumeError RunError ServerError "
        "SkillError ToolError UntildoneError partial_result"
    ),
    "domain.exits": "ExitReason",
    "domain.grading": "CriterionContext CriterionVerdict LoopOutcome VerifierFeedback",
    "domain.log_codec": "event_from_dict event_to_dict",
    "domain.messages": "Message ToolCall",
    "domain.requests": "ModelReply ModelRequest TextDelta ThinkingDelta",
    "domain.results": "AgentResult",
    "domain.stream": "EventType StreamEvent StreamPolicy",
    "domain.usage": "Usage",
    "models.anthropic_messages": "AnthropicModel",
    "models.endpoint": "ModelTimeouts",
    "models.openai_chat": "OpenAIChatModel",
    "policy.stuck": "StuckDetector StuckPolicy StuckSignal is_stuck",
    "run": (
        "AgentStream aclose filter_stream resume_agent run_agent run_agent_loop run_agent_sync "
        "search_loop stream_agent"
    ),
    "tools.decorator": "tool",
    "verify": "APEXSynthesizer ApexCitation ApexConfig Verifier VerifierConfig",
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = [
    "CODING",
    "HTTPMCP",
    "RESEARCH",
    "SIMPLE",
    "SSEMCP",
    "APEXSynthesizer",
    "Agent",
    "AgentDefinition",
    "AgentHooks",
    "AgentResult",
    "AgentStream",
    "AiJudge",
    "AnthropicModel",
    "ApexCitation",
    "ApexConfig",
    "AuthenticationError",
    "BackgroundTaskCompletion",
    "BackgroundTasks",
    "BadReplyError",
    "BadRequestError",
    "Command",
    "CompletionMarker",
    "ConfigError",
    "ConnectionFailedError",
    "CriterionContext",
    "CriterionFailedError",
    "CriterionRegistry",
    "CriterionVerdict",
    "DefinitionError",
    "DistilledSkill",
    "Episode",
    "EpisodicMemory",
    "EventType",
    "ExitReason",
    "FallbackChain",
    "FileMemoryProvider",
    "FunctionSkill",
    "GradingError",
    "HarnessSettings",
    "InMemoryProvider",
    "JsonSchema",
    "LoopConfig",
    "LoopConfigWarning",
    "LoopConvergedError",
    "LoopCriterion",
    "LoopOutcome",
    "LoopSettings",
    "LoopUnsatisfiedError",
    "MCPError",
    "MaxTurnsError",
    "MemoryProviderError",
    "Message",
    "MinScore",
    "ModelBinding",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelTimeoutError",
    "ModelTimeouts",
    "OpenAIChatModel",
    "OutputParseError",
    "PlaybookEntry",
    "Problem",
    "ProceduralMemory",
    "PromptedToolsModel",
    "RateLimitError",
    "RedisMemoryProvider",
    "Regex",
    "ResumeError",
    "RetryPolicy",
    "RunError",
    "SQLMemoryProvider",
    "ServerError",
    "Skill",
    "SkillError",
    "SkillLibrary",
    "SkillRegistry",
    "StdioMCP",
    "StreamEvent",
    "StreamPolicy",
    "StuckDetector",
    "StuckPolicy",
    "StuckSignal",
    "TextDelta",
    "ThinkingDelta",
    "TodoCompletion",
    "TodoList",
    "ToolCall",
    "ToolError",
    "UntildoneError",
    "Usage",
    "Verifier",
    "VerifierConfig",
    "VerifierFeedback",
    "Workspace",
    "__version__",
    "aclose",
    "all_of",
    "any_of",
    "build_agent",
    "definition_schema",
    "dump_definition",
    "event_from_dict",
    "event_to_dict",
    "filter_stream",
    "image",
    "is_stuck",
    "load_definition",
    "not_",
    "parse_definition",
    "partial_result",
    "pdf",
    "resume_agent",
    "run_agent",
    "run_agent_loop",
    "run_agent_sync",
    "search_loop",
    "skill",
    "stream_agent",
    "tool",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
