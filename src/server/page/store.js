// Conversations, in this browser alone.

const PLACE = "roost-chats";

export class Store {
  constructor() {
    this.chats = [];
    try { this.chats = JSON.parse(localStorage.getItem(PLACE) ?? "[]"); } catch { /* none */ }
    if (!Array.isArray(this.chats)) this.chats = [];
    if (this.chats.length === 0) this.add();
    this.current = this.chats[0];
  }
  add() {
    this.current = { id: `${Date.now()}-${this.chats.length}`, title: "New chat", turns: [] };
    this.chats.unshift(this.current);
    this.save();
  }
  remove(chat) {
    this.chats = this.chats.filter((other) => other !== chat);
    if (this.chats.length === 0) this.add();
    if (!this.chats.includes(this.current)) this.current = this.chats[0];
    this.save();
  }
  import(text) {
    const chat = JSON.parse(text);
    const isTurn = (turn) => ["user", "assistant", "tool"].includes(turn?.role) && typeof turn.text === "string";
    if (!Array.isArray(chat?.turns) || !chat.turns.every(isTurn)) throw new Error("This file holds no chat.");
    this.current = { id: `${Date.now()}`, title: String(chat.title ?? "Imported"), turns: chat.turns };
    this.chats.unshift(this.current);
    this.save();
  }
  save() {
    const first = this.current?.turns.find((turn) => turn.role === "user");
    if (first) this.current.title = first.text.slice(0, 60) || "Picture";
    try { localStorage.setItem(PLACE, JSON.stringify(this.chats)); } catch { /* full: kept in memory */ }
  }
}
