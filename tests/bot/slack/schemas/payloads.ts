// What travels between Slack and Keyturn, by the names that Slack's own packages give it.
import type {
  AppHomeOpenedEvent,
  AppMentionEvent,
  BotMessageEvent,
  GenericMessageEvent,
  LinkSharedEvent,
  MemberJoinedChannelEvent,
  MessageChangedEvent,
  UserChangeEvent,
} from "@slack/types";
import type {
  BlockAction,
  BlockOptions,
  EnvelopedEvent,
  OptionGroups,
  RespondArguments,
} from "@slack/bolt/dist/types";

export type {
  BlockSuggestion,
  GlobalShortcut,
  MessageShortcut,
  SlashCommand,
  ViewClosedAction,
  ViewResponseAction,
  ViewSubmitAction,
} from "@slack/bolt/dist/types";
export type { Manifest } from "@slack/web-api/dist/types/request/manifest";

export type BlockActions = BlockAction;
export type Said = Partial<RespondArguments>;
export type Suggested = BlockOptions | OptionGroups<BlockOptions>;

export type AppHomeOpened = EnvelopedEvent<AppHomeOpenedEvent>;
export type AppMention = EnvelopedEvent<AppMentionEvent>;
export type BotMessage = EnvelopedEvent<BotMessageEvent>;
export type LinkShared = EnvelopedEvent<LinkSharedEvent>;
export type MemberJoinedChannel = EnvelopedEvent<MemberJoinedChannelEvent>;
export type Message = EnvelopedEvent<GenericMessageEvent>;
export type MessageChanged = EnvelopedEvent<MessageChangedEvent>;
export type UserChange = EnvelopedEvent<UserChangeEvent>;

export type {
  AppsConnectionsOpenArguments,
  AppsConnectionsOpenResponse,
  AuthTestArguments,
  AuthTestResponse,
  ChatDeleteArguments,
  ChatDeleteResponse,
  ChatGetPermalinkArguments,
  ChatGetPermalinkResponse,
  ChatPostEphemeralArguments,
  ChatPostEphemeralResponse,
  ChatPostMessageArguments,
  ChatPostMessageResponse,
  ChatUnfurlArguments,
  ChatUnfurlResponse,
  ChatUpdateArguments,
  ChatUpdateResponse,
  ConversationsHistoryArguments,
  ConversationsHistoryResponse,
  ConversationsInfoArguments,
  ConversationsInfoResponse,
  ConversationsJoinArguments,
  ConversationsJoinResponse,
  ConversationsListArguments,
  ConversationsListResponse,
  ConversationsMembersArguments,
  ConversationsMembersResponse,
  ConversationsOpenArguments,
  ConversationsOpenResponse,
  ConversationsRepliesArguments,
  ConversationsRepliesResponse,
  FilesCompleteUploadExternalArguments,
  FilesCompleteUploadExternalResponse,
  FilesGetUploadURLExternalArguments,
  FilesGetUploadURLExternalResponse,
  ReactionsAddArguments,
  ReactionsAddResponse,
  UsergroupsListArguments,
  UsergroupsListResponse,
  UsergroupsUsersListArguments,
  UsergroupsUsersListResponse,
  UsersInfoArguments,
  UsersInfoResponse,
  UsersListArguments,
  UsersListResponse,
  UsersLookupByEmailArguments,
  UsersLookupByEmailResponse,
  ViewsOpenArguments,
  ViewsOpenResponse,
  ViewsPublishArguments,
  ViewsPublishResponse,
  ViewsPushArguments,
  ViewsPushResponse,
  ViewsUpdateArguments,
  ViewsUpdateResponse,
} from "@slack/web-api";
