"""Writes samples/*.jsonl: prompts made by rule for the demo (optional; the files are committed).

usage: make_samples.py OUT_DIR
Three kinds that nano-kimi knows the shape of: task dialogues, arithmetic word problems, open requests. Everything is written
here; nothing comes from another data set. A row is {"source", "conversations": [{"from", "value"}...]} ending with a human turn.
"""
import json, random, sys

OUT = sys.argv[1]
R = random.Random(20261130)
CITIES = "Boston Seattle Denver Chicago Portland Austin Atlanta Phoenix Dallas Miami Oakland Berkeley Sacramento Philadelphia".split() + \
    ["San Francisco", "New York", "Los Angeles", "San Diego", "San Jose", "Las Vegas", "Washington DC", "Mountain View"]
DAYS = ["today", "tomorrow", "this weekend", "next Monday", "next Tuesday", "on Wednesday", "on Thursday", "next Friday", "on Saturday",
        "on Sunday", "on March 3rd", "on March 8th", "on the 12th of March", "on March 14th"]
TIMES = ["11 in the morning", "noon", "1:30 pm", "2 o'clock in the afternoon", "5 pm", "6:15 pm", "half past 7 in the evening", "8 pm"]
FOOD = ["Italian", "Mexican", "Chinese", "Indian", "Thai", "Japanese", "Greek", "French", "vegetarian", "seafood", "sushi", "pizza"]
NAMES = "Maria Tom Alice Ben Carla David Emma Farid Grace Hugo Ines Jack Kira Liam Mona Noah Olga Peter Rosa Sam".split()
THINGS = ["apples", "pencils", "marbles", "cookies", "books", "stickers", "tickets", "eggs", "flowers", "cards", "shells", "cupcakes"]
GENRES = ["comedy", "action", "drama", "mystery", "fantasy", "horror", "romance", "documentary"]
MUSIC = ["pop", "rock", "country", "electronic", "reggae", "jazz", "metal"]
c = R.choice
def n(a, b): return R.randint(a, b)
WORD = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}

OPENERS = [
    lambda: f"Hi, I would like to book a table for {WORD[n(2,6)]} people {c(DAYS)}.",
    lambda: f"Can you help me find a restaurant in {c(CITIES)}? I feel like {c(FOOD)} food.",
    lambda: f"I want to eat something. Is there a good {c(FOOD)} place in {c(CITIES)}?",
    lambda: f"Please reserve a table at a {c(FOOD)} restaurant in {c(CITIES)} for {c(TIMES)}.",
    lambda: f"I need a hotel in {c(CITIES)} for {WORD[n(1,6)]} nights, please.",
    lambda: f"Find me a place to stay in {c(CITIES)} with {WORD[n(1,3)]} rooms.",
    lambda: f"I am going to {c(CITIES)} {c(DAYS)} and I need a hotel with a good rating.",
    lambda: f"Search for a one way flight from {c(CITIES)} to {c(CITIES)}.",
    lambda: f"I would like a round trip flight to {c(CITIES)} leaving {c(DAYS)}.",
    lambda: f"Can you find me a cheap flight to {c(CITIES)} {c(DAYS)}?",
    lambda: f"I need bus tickets from {c(CITIES)} to {c(CITIES)} {c(DAYS)}.",
    lambda: f"I am looking for a train to {c(CITIES)} for {WORD[n(1,4)]} people.",
    lambda: f"I need a cab to the airport at {c(TIMES)}.",
    lambda: f"Book a ride for {WORD[n(1,4)]} to the train station, please.",
    lambda: f"What is the weather going to be like in {c(CITIES)} {c(DAYS)}?",
    lambda: f"Will it rain in {c(CITIES)} {c(DAYS)}?",
    lambda: f"I want to see a {c(GENRES)} movie {c(DAYS)}. What is playing in {c(CITIES)}?",
    lambda: f"Can you find me a {c(GENRES)} film that I can watch online?",
    lambda: f"Play me some {c(MUSIC)} music, please.",
    lambda: f"I want to find some {c(MUSIC)} songs to listen to.",
    lambda: f"Are there any {c(MUSIC)} concerts in {c(CITIES)} {c(DAYS)}?",
    lambda: f"I want to find an event in {c(CITIES)} {c(DAYS)}.",
    lambda: f"I need to see a dentist in {c(CITIES)}.",
    lambda: f"Can you find me a hair salon in {c(CITIES)}?",
    lambda: f"I am looking for a therapist in {c(CITIES)}.",
    lambda: f"Please find me an apartment in {c(CITIES)} with {WORD[n(1,4)]} bedrooms.",
    lambda: f"I need to rent a car in {c(CITIES)} from {c(DAYS)}.",
    lambda: f"Transfer {n(2,40)*25} dollars from my savings account to {c(NAMES)}.",
    lambda: "What is the balance of my checking account?",
    lambda: f"Can you check my calendar and tell me if I am free {c(DAYS)}?",
    lambda: f"Add an event to my calendar {c(DAYS)} at {c(TIMES)}.",
    lambda: f"I would like to visit a museum in {c(CITIES)}. What do you suggest?",
    lambda: f"Set an alarm for {c(TIMES)}, please.",
]
FOLLOW = [
    ("Which city should I search in?", lambda: f"In {c(CITIES)}, please."),
    ("What day would you like?", lambda: f"{c(DAYS).capitalize()} works for me."),
    ("What time would you prefer?", lambda: f"At {c(TIMES)}."),
    ("For how many people?", lambda: f"For {WORD[n(1,6)]} people."),
    ("I found one that fits. Would you like to hear more?", lambda: c(["Yes, what is the address?", "Sure, what is the phone number?", "Yes please, how much does it cost?", "No, is there another one?"])),
    ("Shall I go ahead with it?", lambda: c(["Yes, that is perfect.", "Yes, please do.", "Not now, thank you.", "Make it one hour later, please."])),
    ("It is done. Is there anything else I can help you with?", lambda: c(["No, that is all. Thanks a lot!", "Yes, I also need a hotel nearby.", "What is the weather there?", "No, thank you for your help."])),
]
MATH = [
    lambda: (lambda p, t, a, b: f"{p} has {a} {t} and buys {b} more. How many {t} does {p} have now?")(c(NAMES), c(THINGS), n(3, 60), n(2, 40)),
    lambda: (lambda p, q, t, a, b: f"{p} has {a} {t}. {q} has {b} times as many. How many {t} do they have together?")(c(NAMES), c(NAMES), c(THINGS), n(3, 20), n(2, 6)),
    lambda: (lambda p, t, a, b, d: f"{p} packs {a} boxes with {b} {t} each and gives away {d} {t}. How many {t} are left?")(c(NAMES), c(THINGS), n(3, 12), n(4, 15), n(2, 10)),
    lambda: (lambda p, a, b, d: f"{p} earns ${a} an hour and works {b} hours a day for {d} days. How much money does {p} make?")(c(NAMES), n(8, 30), n(2, 9), n(2, 7)),
    lambda: (lambda p, t, a, b: f"A shop sells {t} for ${a} each. {p} buys {b} of them and pays with a $100 bill. How much change does {p} get?")(c(NAMES), c(THINGS), n(2, 6), n(3, 12)),
    lambda: (lambda a, b, d: f"A train drives {a} miles per hour for {b} hours, then {d} miles more. How far does it go in total?")(n(20, 80), n(2, 6), n(5, 60)),
    lambda: (lambda p, a, b: f"{p} reads {a} pages every day. How many days does {p} need for a book of {a*b} pages?")(c(NAMES), n(8, 30), n(3, 14)),
    lambda: (lambda p, q, a, b: f"{p} is {a} years old. {q} is {b} years younger. What is the sum of their ages?")(c(NAMES), c(NAMES), n(20, 60), n(2, 15)),
    lambda: (lambda p, t, a, b: f"{p} shares {a*b} {t} equally among {a} friends. How many {t} does each friend get?")(c(NAMES), c(THINGS), n(2, 9), n(3, 12)),
    lambda: (lambda a, b, d: f"A class has {a} students. {b} are absent and {d} new students join. How many students are in the class?")(n(18, 35), n(2, 6), n(1, 5)),
]
TOPICS = ["the moon", "old maps", "good coffee", "learning to swim", "a small garden", "trains", "honey bees", "winter", "a long walk", "the sea",
          "libraries", "bread", "bicycles", "cats", "a quiet village", "thunderstorms", "board games", "lighthouses", "mountains", "letters"]
OPEN = [
    lambda: f"Write a short story about {c(TOPICS)}.",
    lambda: f"Write a poem of four lines about {c(TOPICS)}.",
    lambda: f"Give me three facts about {c(TOPICS)}.",
    lambda: f"Why do people like {c(TOPICS)}?",
    lambda: f"Explain {c(TOPICS)} to a child.",
    lambda: f"Describe {c(TOPICS)} in two sentences.",
    lambda: f"What do you think about {c(TOPICS)}?",
    lambda: f"Write a friendly letter to {c(NAMES)} about {c(TOPICS)}.",
    lambda: f"Give me some advice for a talk about {c(TOPICS)}.",
    lambda: f"List five words that go with {c(TOPICS)}.",
    lambda: f"Write a Python function that {c(['adds two numbers', 'counts the words of a text', 'reverses a list', 'finds the largest number', 'reads a file'])}.",
    lambda: f"How do I {c(['list files', 'copy a folder', 'find a word in a file', 'show free disk space', 'stop a process'])} on the command line?",
    lambda: f"Do you like {c(TOPICS)}? I like it very much.",
]
def dialogue():
    turns = [{"from": "human", "value": c(OPENERS)()}]
    for a, h in R.sample(FOLLOW, n(0, 3)) if R.random() < 0.6 else []:
        turns += [{"from": "gpt", "value": a}, {"from": "human", "value": h()}]
    return turns
def unique(make, count, seen):
    out = []
    while len(out) < count:
        t = make(); key = json.dumps(t)
        if key not in seen: seen.add(key); out.append(t)
    return out
seen = set()
def write(name, rows):
    with open(f"{OUT}/{name}.jsonl", "w") as f:
        for source, turns in rows: f.write(json.dumps({"source": source, "conversations": turns}, ensure_ascii=False) + "\n")
single = lambda table: lambda: [{"from": "human", "value": c(table)()}]
kinds = [("dialogue", dialogue, 900, 24), ("arithmetic", single(MATH), 500, 20), ("open", single(OPEN), 200, 16)]
evals = [(s, t) for s, m, _, k in kinds for t in unique(m, k, seen)]
write("eval", evals)
for s, m, k, _ in kinds: write(s, [(s, t) for t in unique(m, k, seen)])
