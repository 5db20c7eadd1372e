"""An agent in the terminal: any model, hybrid memory around its runs, and its chats kept in files.

The agent's side: it speaks to a memory gateway, and knows nothing of the server.

agent      the model's loop around one answer, with Pydantic AI
talk       a conversation: prompts, and the commands that begin with a slash
sessions   chats as files, searched and forgotten
origins    where a recalled memory comes from, and its end
"""
